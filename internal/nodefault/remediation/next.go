package remediation

import (
	"context"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// awaitFaultsGone waits for the faults to disappear after a successful remedy.
func (r *Remediator) awaitFaultsGone(ctx context.Context, in stepInput) (delay time.Duration, err error) {
	current := in.status.Remediation
	if in.node == nil || current.Action == faults.RemedyTerminate {
		return 0, nil // nothing is left to verify
	}
	if in.status.HealthySince != nil {
		if r.needsVerification(current) {
			r.beginVerification(in)
		}
		return 0, nil
	}
	if left := current.FinishedAt.Add(r.cfg.VerifyTimeout).Sub(in.now); left > 0 {
		current.Message = "the node was rebooted; waiting for its faults to disappear"
		return min(left, r.cfg.Poll), nil
	}
	return r.setNextAttemptOrEndExhausted(ctx, in)
}

// setNextAttemptOrEndExhausted starts the attempt after one that did not help: the same remedy again if
// allowed, or the next one.
func (r *Remediator) setNextAttemptOrEndExhausted(ctx context.Context, in stepInput) (delay time.Duration, err error) {
	if !in.requiresRemedyNow() {
		return 0, nil
	}
	current, remedies := in.status.Remediation, in.status.DesiredActions.Remedies
	index := slices.Index(remedies, current.Action)
	if index < 0 { // the rules require other remedies now
		return r.beginAttemptOrEndExhausted(in, 0), nil
	}
	// A remedy can occur more than once.
	if last := int(current.RemedyIndex); last < len(remedies) && remedies[last] == current.Action {
		index = last
	}
	refused, err := r.hasActionFailedWithoutTimeout(ctx, current)
	if err != nil {
		return 0, err
	}
	if refused || countRecordedAttempts(in.status, current.Action) >= r.cfg.maxAttempts(current.Action) {
		index++
	}
	return r.beginAttemptOrEndExhausted(in, index), nil
}

// hasActionFailedWithoutTimeout reports whether the attempt was rejected permanently.
func (r *Remediator) hasActionFailedWithoutTimeout(
	ctx context.Context, current *faults.RemediationStatus,
) (failed bool, err error) {
	if current.ObjectName == "" || current.ObjectKind != actionKindFor(current.Action) {
		return false, nil
	}
	a, err := r.actions.get(ctx, current)
	return a != nil && a.failedWithoutTimeout(), err
}

// countRecordedAttempts returns how often a remedy was requested in this session or failed
// before. It counts records, because the objects may be deleted.
func countRecordedAttempts(status *faults.NodeFaultStatus, remedy faults.Remedy) int {
	names := actionNamesOf(actionKindFor(remedy))
	count := 0
	for attempt := range status.Remediation.Attempt {
		ordinal := strconv.Itoa(int(attempt) + 1)
		if hasSessionRecord(status, names.requested, ordinal) || hasSessionRecord(status, names.failed, ordinal) {
			count++
		}
	}
	return count
}

func hasSessionRecord(status *faults.NodeFaultStatus, action, ordinal string) bool {
	return nodefault.HasRecord(status, nodefault.RecordID(status.NodeUID, status.Session, action, ordinal))
}

// beginFirstRemedyIfNoneTried starts again if no remedy was tried, because only support was required or
// the drain had failed, and this has changed.
func (r *Remediator) beginFirstRemedyIfNoneTried(in stepInput) (delay time.Duration, err error) {
	current := in.status.Remediation
	tried := current.Action != faults.RemedySupport && current.ObjectKind != ""
	if tried || !in.requiresRemedyNow() {
		return 0, nil
	}
	first := in.status.DesiredActions.Remedies[0]
	if first == faults.RemedySupport || countRecordedAttempts(in.status, first) > 0 {
		return 0, nil
	}
	if ready, _ := r.cfg.checkDrainAllowsRemedy(in, first); !ready {
		return 0, nil
	}
	return r.beginAttemptOrEndExhausted(in, 0), nil
}

// endExhaustedAndRecordSupportRequired ends the remediation and records that a person is needed.
func endExhaustedAndRecordSupportRequired(
	in stepInput, action faults.Remedy, remedyIndex int, reason string,
) {
	current := in.status.Remediation
	if current == nil || action == faults.RemedySupport && current.Action != faults.RemedySupport {
		attempt := int32(0)
		if current != nil {
			attempt = current.Attempt
		}
		current = &faults.RemediationStatus{
			Action:    action,
			Attempt:   attempt,
			StartedAt: metav1.NewTime(in.now),
			Deadline:  metav1.NewTime(in.now),
		}
	}
	current.RemedyIndex = int32(remedyIndex) //nolint:gosec // there are few remedies
	endAttempt(current, faults.RemedyExhausted, reason, in.now)
	in.status.Remediation = current
	ordinal := "" // if no attempt was made
	if current.Attempt > 0 {
		ordinal = strconv.Itoa(int(current.Attempt))
	}
	record := nodefault.NewRecord(in.status, sourceRemediation, changeevent.ActionSupportRequired, ordinal, in.now)
	record.Reason = current.Message
	nodefault.AppendRecordOnceAndTrim(in.status, record)
}
