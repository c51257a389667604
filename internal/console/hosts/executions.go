package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

const (
	executionGroup = "kubernetesexecution.kubernaut.io"
	executionsName = "kubernetesexecutions"
)

// Execution is an execution in the console. Lists omit the plan and the object.
type Execution struct {
	Host      string `json:"host"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`

	Action      string           `json:"action"`
	Target      string           `json:"target"`
	Environment string           `json:"environment,omitempty"`
	Phase       string           `json:"phase"`
	PhaseSince  *time.Time       `json:"phase_since,omitempty"`
	Reason      string           `json:"reason,omitempty"`
	Message     string           `json:"message,omitempty"`
	Outcome     v1alpha1.Outcome `json:"outcome,omitempty"`
	Created     time.Time        `json:"created"`

	RequestedBy      string `json:"requested_by,omitempty"`
	RequestedByAgent string `json:"requested_by_agent,omitempty"` // the assistant that made the request for the user; empty is the user

	RequestReason string                        `json:"request_reason,omitempty"`
	RollbackOf    string                        `json:"rollback_of,omitempty"`
	Approval      *v1alpha1.ApprovalStatus      `json:"approval,omitempty"`
	Expires       *time.Time                    `json:"expires,omitempty"`
	PlanHash      string                        `json:"plan_hash,omitempty"`
	Impact        string                        `json:"impact,omitempty"`
	Plan          *v1alpha1.Plan                `json:"plan,omitempty"`
	Policy        *v1alpha1.PolicyValidation    `json:"policy,omitempty"`
	Rollback      *v1alpha1.RollbackInformation `json:"rollback,omitempty"`
	Conditions    []metav1.Condition            `json:"conditions,omitempty"`

	UndeliveredChangeEvents int `json:"undelivered_change_events,omitempty"`

	Can     map[string]Permission         `json:"can,omitempty"`
	Command map[string]string             `json:"command,omitempty"`
	Object  *v1alpha1.KubernetesExecution `json:"object,omitempty"`
}

// Permission is whether a person may do something, and why not.
type Permission struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"`
}

// toExecutionSummary returns the short form of an execution.
func toExecutionSummary(host string, execution *v1alpha1.KubernetesExecution) Execution {
	s := &execution.Status
	e := Execution{
		Host: host, Namespace: execution.Namespace, Name: execution.Name, UID: string(execution.UID),
		Action: execution.Spec.Action, Target: executions.FormatTarget(execution), Environment: execution.Spec.Environment,
		Phase: phaseOrNew(execution), Reason: cmp.Or(string(s.ReasonDetail), string(s.Reason)), Message: s.Message, Outcome: s.Outcome,
		Created: execution.CreationTimestamp.UTC(), RequestedBy: execution.Spec.RequestedBy, RequestedByAgent: execution.Spec.RequestedByAgent, RequestReason: execution.Spec.Reason,
		Approval: s.Approval, Rollback: s.RollbackInformation,
		UndeliveredChangeEvents: len(s.PendingChangeEvents),
	}
	if n := len(s.PhaseTransitions); n > 0 {
		at := s.PhaseTransitions[n-1].At.UTC()
		e.PhaseSince = &at
	}
	if execution.Spec.RollbackOf != nil {
		e.RollbackOf = execution.Spec.RollbackOf.Name
	}
	if s.Approval != nil && s.Approval.Deadline != nil {
		at := s.Approval.Deadline.UTC()
		e.Expires = &at
	}
	if s.Plan != nil {
		e.PlanHash, e.Impact = s.Plan.Hash, s.Plan.Impact.Description
	}
	return e
}

// phaseOrNew returns the phase of an execution. One that the controller has not seen is new.
func phaseOrNew(execution *v1alpha1.KubernetesExecution) string {
	return cmp.Or(string(execution.Status.Phase), "new")
}

// toExecutionDetails returns an execution with all that a decision needs.
func (h *Host) toExecutionDetails(ctx context.Context, person console.Person, execution *v1alpha1.KubernetesExecution) Execution {
	e := toExecutionSummary(h.cfg.Name, execution)
	e.Plan, e.Conditions = execution.Status.Plan, execution.Status.Conditions
	if r := execution.Status.ValidationResults; r != nil {
		e.Policy = r.PolicyValidation
	}
	e.Can, e.Command = h.reviews.checkRequestPermissions(ctx, person, execution), cliCommandsByRequest(execution)
	e.Object = execution.DeepCopy()
	e.Object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	e.Object.ManagedFields = nil
	return e
}

func cliCommandsByRequest(execution *v1alpha1.KubernetesExecution) map[string]string {
	in := " --namespace=" + execution.Namespace
	approve := "fleetloop approve " + execution.Name + in
	if p := execution.Status.Plan; p != nil {
		approve += " --plan=" + executions.ShortHash(p.Hash)
	}
	commands := map[string]string{
		"audit":    "fleetloop audit get --execution=" + execution.Namespace + "/" + execution.Name,
		"approve":  approve,
		"reject":   "fleetloop reject " + execution.Name + in + " --reason=TEXT",
		"cancel":   "fleetloop exec cancel " + execution.Name + in,
		"rollback": "fleetloop rollback " + execution.Name + in + " --reason=TEXT",
	}
	if job := execution.Status.JobName; job != "" {
		commands["log"] = "kubectl logs" + in + " --follow job/" + job
	}
	return commands
}

// checkRequestPermissions returns which requests a person may send about an execution. The API server decides in
// the end; this only spares a person a refusal.
func (v *accessReviewer) checkRequestPermissions(
	ctx context.Context, person console.Person, execution *v1alpha1.KubernetesExecution,
) map[string]Permission {
	me, err := v.lookUpTokenUser(ctx, person)
	if err != nil {
		denied := Permission{Reason: explainClusterAccessError(err)}
		return map[string]Permission{"approve": denied, "reject": denied, "cancel": denied, "rollback": denied}
	}
	toDecide := []authorizationv1.ResourceAttributes{{Verb: "patch"}, {Verb: v1alpha1.VerbApprove}}
	toRollBack := []authorizationv1.ResourceAttributes{{Verb: "create"}}
	notReversible := executions.CheckReversible(execution)
	if notReversible == nil {
		action := execution.Status.RollbackInformation.RollbackAction
		toRollBack = append(toRollBack, authorizationv1.ResourceAttributes{Verb: v1alpha1.VerbExecute, Name: action})
	}
	permissions := map[string]Permission{}
	for request, needs := range map[string]struct {
		obstacle error
		rights   []authorizationv1.ResourceAttributes
	}{
		"approve":  {checkUserMayDecide(execution, me, true), toDecide},
		"reject":   {checkUserMayDecide(execution, me, false), toDecide},
		"cancel":   {executions.CheckCancellable(execution), []authorizationv1.ResourceAttributes{{Verb: "patch"}}},
		"rollback": {notReversible, toRollBack},
	} {
		if needs.obstacle != nil {
			permissions[request] = Permission{Reason: needs.obstacle.Error()}
		} else {
			permissions[request] = v.checkExecutionRights(ctx, person, me.Name, execution.Namespace, needs.rights)
		}
	}
	return permissions
}

// checkExecutionRights returns whether a person has all rights on the executions of a namespace.
func (v *accessReviewer) checkExecutionRights(
	ctx context.Context, person console.Person, userName, namespace string, rights []authorizationv1.ResourceAttributes,
) Permission {
	for _, right := range rights {
		right.Group, right.Resource, right.Namespace = executionGroup, executionsName, namespace
		allowed, err := v.personHasAccess(ctx, person, right)
		if err != nil {
			return Permission{Reason: "the rights of " + userName + " are not known now: " + err.Error()}
		}
		if !allowed {
			return Permission{Reason: fmt.Sprintf("%s may not %s executions in namespace %s", userName, right.Verb, namespace)}
		}
	}
	return Permission{Allowed: true}
}

// checkUserMayDecide returns why a user cannot decide on the current plan.
func checkUserMayDecide(execution *v1alpha1.KubernetesExecution, user reviewedUser, approves bool) error {
	if err := executions.CheckDecidable(execution, ""); err != nil {
		return err
	}
	for _, a := range execution.Spec.Approvals {
		if a.Approver == user.Name && a.PlanHash == execution.Status.Plan.Hash {
			return fmt.Errorf("%s has already decided: %s", user.Name, a.Decision)
		}
	}
	rules := execution.Status.Approval
	if rules == nil || !approves {
		return nil
	}
	if rules.RequesterCannotApprove && execution.Spec.RequestedBy == user.Name {
		return fmt.Errorf("%s requested the execution, so another person must approve it", user.Name)
	}
	isMember := slices.ContainsFunc(rules.Groups, func(g string) bool { return slices.Contains(user.Groups, g) })
	if len(rules.Groups) > 0 && !isMember {
		return fmt.Errorf("the policy wants an approval from a member of %s", strings.Join(rules.Groups, " or "))
	}
	return nil
}

// page is a page of a list.
type page[T any] struct {
	Items    []T       `json:"items"`
	Continue string    `json:"continue,omitempty"`
	AsOf     time.Time `json:"as_of"`
}

const (
	defaultLimit = 100
	maxLimit     = 500
)

// serveExecutions serves the executions that the person may list, the newest first.
func (h *Host) serveExecutions(w http.ResponseWriter, r *http.Request) error {
	ctx, person, query := r.Context(), console.PersonFromContext(r.Context()), r.URL.Query()
	selected, err := h.listSelectedExecutions(ctx, person, query)
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), strconv.Itoa(defaultLimit)))
	if err != nil || limit < 1 || limit > maxLimit {
		console.WriteProblemJSON(w, http.StatusBadRequest, fmt.Sprintf("limit must be a number from 1 to %d.", maxLimit), "")
		return nil //nolint:nilerr // it is answered
	}
	answer := page[Execution]{Items: []Execution{}, AsOf: time.Now().UTC()}
	if len(selected) > limit {
		selected = selected[:limit]
		answer.Continue = encodeListPosition(selected[limit-1])
	}
	for _, ke := range selected {
		e := toExecutionSummary(h.cfg.Name, ke)
		e.Can, e.Command = h.reviews.checkRequestPermissions(ctx, person, ke), cliCommandsByRequest(ke)
		answer.Items = append(answer.Items, e)
	}
	console.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// listSelectedExecutions returns the executions that a query selects and the person may list, the newest first.
func (h *Host) listSelectedExecutions(
	ctx context.Context,
	person console.Person,
	query url.Values,
) ([]*v1alpha1.KubernetesExecution, error) {
	f, err := h.reviews.newReadFilter(ctx, person, "list", executionGroup, executionsName)
	if err != nil {
		return nil, err
	}
	var all v1alpha1.KubernetesExecutionList
	if err := h.reader.List(ctx, &all, client.InNamespace(query.Get("namespace"))); err != nil {
		return nil, fmt.Errorf("list executions: %w", err)
	}
	list, err := filterReadable(ctx, f, all.Items)
	if err != nil {
		return nil, err
	}
	if phase := query.Get("phase"); phase != "" {
		wanted := strings.Split(phase, ",")
		list = slices.DeleteFunc(list, func(ke *v1alpha1.KubernetesExecution) bool { return !slices.Contains(wanted, phaseOrNew(ke)) })
	}
	if after := query.Get("continue"); after != "" {
		list = slices.DeleteFunc(list, func(ke *v1alpha1.KubernetesExecution) bool { return encodeListPosition(ke) >= after })
	}
	slices.SortFunc(list, func(a, b *v1alpha1.KubernetesExecution) int {
		return cmp.Compare(encodeListPosition(b), encodeListPosition(a))
	})
	return list, nil
}

// encodeListPosition returns the position of an execution in a list: by time, then by name.
func encodeListPosition(execution *v1alpha1.KubernetesExecution) string {
	return execution.CreationTimestamp.UTC().Format(time.RFC3339) + " " + execution.Namespace + "/" + execution.Name
}

// getExecutionIfAllowed reads an execution that the person may get. Otherwise it does not exist for the person.
func (h *Host) getExecutionIfAllowed(r *http.Request) (*v1alpha1.KubernetesExecution, error) {
	ctx, key := r.Context(), client.ObjectKey{Namespace: r.PathValue("ns"), Name: r.PathValue("name")}
	f, err := h.reviews.newReadFilter(ctx, console.PersonFromContext(ctx), "get", executionGroup, executionsName)
	if err != nil {
		return nil, err
	}
	if ok, err := f.allowsRead(ctx, key.Namespace, key.Name); err != nil || !ok {
		return nil, errors.Join(err, errHidden)
	}
	var ke v1alpha1.KubernetesExecution
	if err := h.reader.Get(ctx, key, &ke); err != nil {
		return nil, fmt.Errorf("get execution: %w", err)
	}
	return &ke, nil
}

func (h *Host) serveExecution(w http.ResponseWriter, r *http.Request) error {
	ke, err := h.getExecutionIfAllowed(r)
	if err == nil {
		console.WriteJSON(w, http.StatusOK, h.toExecutionDetails(r.Context(), console.PersonFromContext(r.Context()), ke))
	}
	return err
}
