package audit

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// Each kind of event of an execution has a fixed number. A record therefore does not depend on the
// records before it.
const (
	seqRequested = iota + 1
	seqPolicyDecided
	seqValidated
	seqApprovalRequested

	seqDecisions   = 10 // one per approval or rejection
	seqDeniedLater = 49 // the policies denied the plan although the checks had passed
	seqStarted     = 50
	seqAttempts    = 51 // one per attempt
	seqResult      = 70
	seqRollback    = 71
	seqEnded       = 72
	seqDeleted     = 73

	maxDecisions = seqDeniedLater - seqDecisions
	maxAttempts  = seqResult - seqAttempts
)

// Limits of texts, in bytes. Those of Kubernetes are equal or lower for most.
const (
	maxText  = 512
	maxProse = 1024
)

// Records returns the events of an execution, derived from its status and ordered by number. A
// later status yields the same records and possibly more, but for the details of a decision that a later one replaced.
//
// A record is created only once its content is final: the decision of a policy after the checks,
// the approvers after the decision. Times come from the status; an event without a time gets that
// of its phase.
func Records(ke *v1alpha1.KubernetesExecution, cluster string) []Record {
	return newRecordBuilder(ke, cluster).buildRecords()
}

// RecordsOfDeleted returns the events of a deleted execution, derived from its last state. Content
// that was not final counts as final then.
func RecordsOfDeleted(ke *v1alpha1.KubernetesExecution, g Deletion, cluster string) []Record {
	s := newRecordBuilder(ke, cluster)
	s.gone = &g
	return s.buildRecords()
}

// Deletion describes the deletion of an execution.
type Deletion struct {
	// At is the time of the deletion, unless the execution has a deletion timestamp.
	At time.Time
	// Unseen means that At is the time at which the deletion was noticed.
	Unseen bool
}

// A recordBuilder collects the records of one execution.
type recordBuilder struct {
	ke      *v1alpha1.KubernetesExecution
	gone    *Deletion // nil while the execution exists
	at      map[v1alpha1.Phase]time.Time
	common  Record
	redact  *redactor
	records []Record
}

func newRecordBuilder(ke *v1alpha1.KubernetesExecution, cluster string) *recordBuilder {
	s := &recordBuilder{ke: ke, at: map[v1alpha1.Phase]time.Time{}, redact: newRedactor(ke)}
	for _, t := range ke.Status.PhaseTransitions {
		if _, ok := s.at[t.Phase]; !ok {
			s.at[t.Phase] = t.At.Time
		}
	}
	s.common = Record{
		ExecutionUID: sanitizeAndTruncate(string(ke.UID), maxText),
		ActorType:    Controller,
		ActorID:      ControllerID,
		Action:       sanitizeAndTruncate(ke.Spec.Action, maxText),
		Target:       targetOf(ke),
		Cluster:      sanitizeAndTruncate(cmp.Or(ke.Spec.TargetCluster, cluster), maxText),
		Namespace:    sanitizeAndTruncate(ke.Namespace, maxText),
		Name:         sanitizeAndTruncate(ke.Name, maxText),
		Correlation:  sanitizeAndTruncate(ke.Spec.CorrelationID, maxText),
		Parent:       sanitizeAndTruncate(ownerOrWorkflowPath(ke), maxText),
	}
	return s
}

func (s *recordBuilder) buildRecords() []Record {
	s.addRequestRecord()
	s.addCheckRecords()
	s.addApprovalRecords()
	s.addLaterDenialRecord()
	s.addRunRecords()
	s.addEndAndDeletionRecords()
	return s.records
}

// addRecord completes and adds a record. A zero time means the time of the request.
func (s *recordBuilder) addRecord(seq int, kind Type, at time.Time, r Record, payload payloadObject) {
	full := s.common
	full.Seq, full.Type, full.Time = int32(seq), kind, at //nolint:gosec // below a hundred
	if at.IsZero() {
		full.Time = s.ke.CreationTimestamp.Time
	}
	full.Time = full.Time.UTC().Truncate(time.Microsecond)
	if r.ActorType != "" {
		full.ActorType, full.ActorID = r.ActorType, sanitizeAndTruncate(r.ActorID, maxText)
	}
	full.Outcome = sanitizeAndTruncate(r.Outcome, maxText)
	full.Reason = sanitizeAndTruncate(r.Reason, maxText)
	full.PolicyHash = sanitizeAndTruncate(r.PolicyHash, maxText)
	full.PlanHash = sanitizeAndTruncate(r.PlanHash, maxText)
	full.Payload = payload.redactedBoundedJSON(s.redact)
	s.records = append(s.records, full)
}

func (s *recordBuilder) hasReachedPhase(p v1alpha1.Phase) bool {
	_, ok := s.at[p]
	return ok || s.ke.Status.Phase == p
}

// checksOutcome reports whether the checks are over and passed, and when they ended.
func (s *recordBuilder) checksOutcome() (at time.Time, over, passed bool) {
	for _, p := range []v1alpha1.Phase{
		v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval, v1alpha1.PhaseExecuting, v1alpha1.PhaseCompleted,
	} {
		if s.hasReachedPhase(p) {
			return s.at[p], true, true
		}
	}
	return s.at[s.ke.Status.Phase], execution.IsFinal(s.ke.Status.Phase), false
}

func (s *recordBuilder) planAndPolicyHash() (planHash, policyHash string) {
	if p := s.ke.Status.Plan; p != nil {
		return p.Hash, p.PolicyHash
	}
	return "", ""
}

func (s *recordBuilder) addRequestRecord() {
	kind, id := actorOf(s.ke.Spec.RequestedBy)
	s.addRecord(seqRequested, Requested, s.ke.CreationTimestamp.Time, Record{ActorType: kind, ActorID: id}, s.requestPayload())
}

func (s *recordBuilder) addCheckRecords() {
	at, over, passed := s.checksOutcome()
	if !over {
		return
	}
	switch decision := s.policyDecision(); {
	case decision == nil:
	case passed && !decision.Allowed:
		// The status no longer has the first decision, which allowed the plan. Only its details are missing here.
		hash, policy := s.planAndPolicyHash()
		s.addRecord(seqPolicyDecided, PolicyDecided, at, Record{Outcome: OutcomeAllowed, PolicyHash: policy, PlanHash: hash}, payloadObject{})
	default:
		s.addPolicyRecord(seqPolicyDecided, at, decision)
	}
	if passed {
		hash, policy := s.planAndPolicyHash()
		r := Record{Outcome: OutcomePassed, PolicyHash: policy, PlanHash: hash}
		s.addRecord(seqValidated, Validated, at, r, s.validationPayload(s.ke.Status.ValidationResults))
	}
}

// addLaterDenialRecord adds the decision of policies that denied the plan after the checks had passed.
func (s *recordBuilder) addLaterDenialRecord() {
	decision := s.policyDecision()
	_, _, passed := s.checksOutcome()
	deniedLater := passed && decision != nil && !decision.Allowed
	if deniedLater && execution.IsFinal(s.ke.Status.Phase) {
		s.addPolicyRecord(seqDeniedLater, s.at[v1alpha1.PhaseFailed], decision)
	}
}

// policyDecision returns the latest decision of the policies, or nil.
func (s *recordBuilder) policyDecision() *v1alpha1.PolicyValidation {
	if s.ke.Status.ValidationResults == nil {
		return nil
	}
	return s.ke.Status.ValidationResults.PolicyValidation
}

func (s *recordBuilder) addPolicyRecord(seq int, at time.Time, decision *v1alpha1.PolicyValidation) {
	hash, policy := s.planAndPolicyHash()
	r := Record{Outcome: OutcomeDenied, PolicyHash: cmp.Or(decision.PolicyHash, policy), PlanHash: hash}
	if decision.Allowed {
		r.Outcome = OutcomeAllowed
	}
	s.addRecord(seq, PolicyDecided, at, r, policyPayload(s.redact, decision))
}

func (s *recordBuilder) addApprovalRecords() {
	if !s.hasReachedPhase(v1alpha1.PhaseWaitingApproval) {
		return
	}
	hash, policy := s.planAndPolicyHash()
	status := s.ke.Status.Approval
	s.addRecord(seqApprovalRequested, ApprovalRequested, s.at[v1alpha1.PhaseWaitingApproval],
		Record{PolicyHash: policy, PlanHash: hash}, approvalRequestPayload(status))

	isWaiting := s.ke.Status.Phase == v1alpha1.PhaseWaitingApproval && s.gone == nil
	if status == nil || isWaiting {
		return // earlier events may still follow, or the approval may be requested again
	}
	at := s.decisionTime(status)
	for i, a := range s.selectDecisionsToRecord(status) {
		if i == maxDecisions {
			break
		}
		r := Record{PolicyHash: policy, PlanHash: cmp.Or(a.PlanHash, hash)}
		r.ActorType, r.ActorID = actorOf(a.Approver)
		kind := Approved
		if a.Decision == v1alpha1.Reject {
			kind = Rejected
		}
		s.addRecord(seqDecisions+i, kind, at, r, payloadObject{"reason": a.Reason})
	}
}

// decisionTime returns the time at which an approval was decided or ended undecided.
func (s *recordBuilder) decisionTime(status *v1alpha1.ApprovalStatus) time.Time {
	if status.DecidedAt != nil {
		return status.DecidedAt.Time
	}
	return cmp.Or(s.at[v1alpha1.PhaseExecuting], s.at[v1alpha1.PhaseFailed], s.at[v1alpha1.PhaseWaitingApproval])
}

// selectDecisionsToRecord returns the approvals that counted, or all of them if one was a rejection.
func (s *recordBuilder) selectDecisionsToRecord(status *v1alpha1.ApprovalStatus) []v1alpha1.Approval {
	if status.State == v1alpha1.ApprovalRejected && len(s.ke.Spec.Approvals) > 0 {
		// The status has only the rejection. Approvals of other plans were written without the guard.
		planHash, _ := s.planAndPolicyHash()
		ofOtherPlan := func(a v1alpha1.Approval) bool { return a.PlanHash != planHash }
		return slices.DeleteFunc(slices.Clone(s.ke.Spec.Approvals), ofOtherPlan)
	}
	if status.State == v1alpha1.ApprovalApproved && len(status.CountedDecisions) == 0 {
		return []v1alpha1.Approval{{Decision: v1alpha1.Approve}} // the bare approvalReceived
	}
	return status.CountedDecisions
}

func (s *recordBuilder) addRunRecords() {
	if !s.hasReachedPhase(v1alpha1.PhaseExecuting) {
		return
	}
	hash, policy := s.planAndPolicyHash()
	begun := s.at[v1alpha1.PhaseExecuting]
	results := s.ke.Status.ExecutionResults
	if results != nil {
		hash = cmp.Or(results.PlanHash, hash)
	}
	s.addRecord(seqStarted, Started, begun, Record{PolicyHash: policy, PlanHash: hash}, startPayload(s.ke.Status.Plan))
	if results == nil {
		return
	}
	over := results.EndTime != nil || s.ke.Status.Phase != v1alpha1.PhaseExecuting
	attempts := int(results.RetriesAttempted)
	if over && (results.StartTime != nil || attempts > 0) {
		attempts++
	}
	ended := s.actionEndTime(results)
	for i := range min(attempts, maxAttempts) {
		r := Record{Outcome: string(v1alpha1.OutcomeFailed), PlanHash: hash}
		at := begun
		isLast := over && i == attempts-1
		if isLast {
			r.Outcome = outcomeName(results.Success)
			at = ended
		}
		s.addRecord(seqAttempts+i, AttemptFinished, at, r, attemptPayload(i+1, isLast))
	}
	if !over {
		return
	}
	r := Record{Outcome: outcomeName(results.Success), PolicyHash: policy, PlanHash: hash}
	if !results.Success {
		r.Reason = string(s.ke.Status.Reason)
	}
	s.addRecord(seqResult, Result, ended, r, resultPayload(s.redact, results))
}

// actionEndTime returns the time at which the action ended.
func (s *recordBuilder) actionEndTime(results *v1alpha1.ExecutionResults) time.Time {
	if results.EndTime != nil {
		return results.EndTime.Time
	}
	return cmp.Or(s.at[v1alpha1.PhaseRollbackReady], s.at[v1alpha1.PhaseCompleted],
		s.at[v1alpha1.PhaseFailed], s.at[v1alpha1.PhaseExecuting])
}

func outcomeName(success bool) string {
	if success {
		return string(v1alpha1.OutcomeSucceeded)
	}
	return string(v1alpha1.OutcomeFailed)
}

func (s *recordBuilder) addEndAndDeletionRecords() {
	st := &s.ke.Status
	hash, policy := s.planAndPolicyHash()
	rollback := st.RollbackInformation
	if s.hasReachedPhase(v1alpha1.PhaseRollbackReady) && rollback != nil && rollback.Available {
		s.addRecord(seqRollback, RollbackAvailable, s.at[v1alpha1.PhaseRollbackReady],
			Record{PlanHash: hash}, rollbackPayload(s.redact, rollback))
	}
	r := Record{Outcome: string(st.Outcome), Reason: string(st.Reason), PolicyHash: policy, PlanHash: hash}
	switch st.Phase {
	case v1alpha1.PhaseCompleted:
		r.Outcome = cmp.Or(r.Outcome, string(v1alpha1.OutcomeSucceeded))
		s.addRecord(seqEnded, Finalized, s.at[st.Phase], r, s.endPayload())
	case v1alpha1.PhaseFailed:
		r.Outcome = string(v1alpha1.OutcomeFailed)
		s.addRecord(seqEnded, Failed, s.at[st.Phase], r, s.endPayload())
	case v1alpha1.PhaseNew, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval,
		v1alpha1.PhaseExecuting, v1alpha1.PhaseRollbackReady:
		// It has not ended.
	}
	// The object does not record the user that deleted it.
	deletedBy := Record{ActorType: Unknown}
	if s.ke.DeletionTimestamp != nil {
		s.addRecord(seqDeleted, Deleted, s.ke.DeletionTimestamp.Time, deletedBy, payloadObject{})
	} else if s.gone != nil {
		payload := payloadObject{}
		if s.gone.Unseen {
			payload["unseen"] = true
		}
		s.addRecord(seqDeleted, Deleted, s.gone.At, deletedBy, payload)
	}
}

// actorOf returns the actor type and ID for a user name.
func actorOf(name string) (kind ActorType, fullName string) {
	switch {
	case name == "":
		return Unknown, ""
	case strings.HasPrefix(name, "system:serviceaccount:"):
		return ServiceAccount, name
	}
	return User, name
}

// targetOf returns the target of an execution from the most detailed source.
func targetOf(ke *v1alpha1.KubernetesExecution) Target {
	var t Target
	if given := ke.Spec.Target; given != nil {
		t = Target{given.APIVersion, given.Kind, given.Namespace, given.Name, string(given.UID)}
	}
	t.Namespace = cmp.Or(t.Namespace, ke.Spec.TargetNamespace)
	t.Name = cmp.Or(t.Name, ke.Spec.ResourceName)
	if parts := strings.Split(ke.Status.Target, "/"); len(parts) > 1 {
		t.Kind = cmp.Or(t.Kind, parts[0])
		t.Name = cmp.Or(t.Name, parts[len(parts)-1])
		if len(parts) == 3 {
			t.Namespace = cmp.Or(t.Namespace, parts[1])
		}
	}
	if p := ke.Status.Plan; p != nil {
		t = Target{p.Target.APIVersion, p.Target.Kind, p.Target.Namespace, p.Target.Name, string(p.Target.UID)}
	}
	for _, s := range []*string{&t.APIVersion, &t.Kind, &t.Namespace, &t.Name, &t.UID} {
		*s = sanitizeAndTruncate(*s, maxText)
	}
	return t
}

// ownerOrWorkflowPath returns the parent of an execution as Kind/namespace/name.
func ownerOrWorkflowPath(ke *v1alpha1.KubernetesExecution) string {
	if owner := metav1.GetControllerOfNoCopy(ke); owner != nil {
		return owner.Kind + "/" + ke.Namespace + "/" + owner.Name
	}
	kind, ref := "WorkflowExecution", ke.Spec.WorkflowExecutionRef
	if ref == nil {
		kind, ref = "RemediationRequest", ke.Spec.RemediationRequestRef
	}
	if ref == nil {
		return ""
	}
	return kind + "/" + cmp.Or(ref.Namespace, ke.Namespace) + "/" + ref.Name
}
