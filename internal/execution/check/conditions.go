package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

const maxConditionMessage = 1024 // limit of the CRD schema

// compilePostAndCheckPreConditions is the sixth step: it compiles the postconditions and evaluates all
// preconditions, even after a failure, unless the evaluation of a required one is killed.
func (r *round) compilePostAndCheckPreConditions(ctx context.Context) error {
	releaseSlot, err := r.takeEvaluationSlot(len(r.ke.Spec.PreConditions) + len(r.ke.Spec.PostConditions))
	if err != nil {
		return err
	}
	defer releaseSlot()
	if err := r.compilePostConditions(ctx); err != nil || r.out.Failed != nil {
		return err
	}
	return r.evaluatePreConditions(ctx, timing{
		begun:          execution.PhaseStartOrNow(r.ke, v1alpha1.PhaseValidating, r.now),
		now:            r.now,
		defaultTimeout: preConditionTimeout,
	})
}

// compilePostConditions compiles the postconditions, so that an invalid one is reported before the
// action and not after it. Only a required one refuses the execution.
func (r *round) compilePostConditions(ctx context.Context) error {
	stored := storedValidationResults(r.ke).PostConditionResults
	for i, condition := range r.ke.Spec.PostConditions {
		if i < len(stored) && stored[i].Killed {
			r.recordKilledPostCondition(i, stored[i])
			continue
		}
		err := r.place.CheckModule(ctx, condition.Rego)
		if err == nil {
			continue
		}
		killed := errors.Is(err, execution.ErrKilled)
		switch {
		case isInconclusive(ctx, err):
			return fmt.Errorf("compile postcondition %q: %w", condition.Type, err)
		case condition.Required && killed:
			r.out.failValidation(v1alpha1.DetailConditionKilled, "postcondition %q can never pass: %v", condition.Type, err)
			return nil
		case condition.Required:
			r.out.failValidation(v1alpha1.DetailInvalidParameters, "postcondition %q can never pass: %v", condition.Type, err)
			return nil
		case killed:
			r.recordKilledPostCondition(i, v1alpha1.ConditionResult{
				ConditionType:  condition.Type,
				Killed:         true,
				Attempts:       1,
				EvaluationTime: toAPITime(r.now),
				ErrorMessage:   action.TruncateText(err.Error(), maxConditionMessage),
			})
		}
	}
	return nil
}

// recordKilledPostCondition records the result of the optional postcondition at index, whose evaluation
// was killed, so that it is not evaluated again. Results belong to conditions by their index, so those
// before it state that they were not evaluated.
func (r *round) recordKilledPostCondition(index int, killed v1alpha1.ConditionResult) {
	results := r.out.Results.PostConditionResults
	for _, condition := range r.ke.Spec.PostConditions[len(results):index] {
		results = append(results, v1alpha1.ConditionResult{ConditionType: condition.Type, Required: condition.Required})
	}
	r.out.Results.PostConditionResults = append(results, killed)
}

// recheckPreConditions evaluates the preconditions again before the action, because an approval may take
// long. It does not wait for them.
func (r *round) recheckPreConditions(ctx context.Context) error {
	releaseSlot, err := r.takeEvaluationSlot(len(r.ke.Spec.PreConditions))
	if err != nil {
		return err
	}
	defer releaseSlot()
	return r.evaluatePreConditions(ctx, timing{begun: r.now, now: r.now, once: true})
}

// takeEvaluationSlot takes one evaluation slot for all conditions. With a slot per condition, others
// could come in between, and the results so far would be lost. Without conditions, it takes none.
func (r *round) takeEvaluationSlot(conditionCount int) (releaseSlot func(), err error) {
	if conditionCount == 0 {
		return func() {}, nil
	}
	place, err := r.checker.deps.Conditions.ReservePlace(r.ke.Spec.RequestedBy)
	if err != nil {
		return nil, fmt.Errorf("evaluate conditions: %w", err)
	}
	r.place = place
	return place.ReleasePlace, nil
}

// evaluatePreConditions evaluates the preconditions. The execution fails if a required one fails for good,
// and waits if one may still pass.
func (r *round) evaluatePreConditions(ctx context.Context, t timing) error {
	conditions := r.ke.Spec.PreConditions
	if len(conditions) == 0 {
		return nil
	}
	t.before = storedValidationResults(r.ke).PreConditionResults
	verdicts, err := r.evaluateConditions(ctx, conditions, t)
	if err != nil {
		return err
	}
	detail := v1alpha1.DetailPreConditionFailed
	var failures []string
	for i, v := range verdicts {
		r.out.Results.PreConditionResults = append(r.out.Results.PreConditionResults, v.result)
		if !conditions[i].Required || !v.hasFailedFinally() {
			continue
		}
		failures = append(failures, v.describePreConditionFailure(t.once))
		if v.result.Killed {
			detail = v1alpha1.DetailConditionKilled
		}
	}
	if len(failures) > 0 {
		r.out.failValidation(detail, "%s", strings.Join(failures, "; "))
		return nil
	}
	r.out.Wait = nextEvaluationDelay(verdicts)
	return nil
}

// describePreConditionFailure explains why a precondition failed for good. passedBefore means that it was
// evaluated again after it had passed.
func (v verdict) describePreConditionFailure(passedBefore bool) string {
	precondition := fmt.Sprintf("precondition %q", v.result.ConditionType)
	why := v.result.ErrorMessage
	switch {
	case v.result.Killed:
		return fmt.Sprintf("%s: %s; it is not evaluated again: simplify the condition", precondition, why)
	case v.final:
		return fmt.Sprintf("%s can never pass: %s", precondition, why)
	case passedBefore:
		return fmt.Sprintf("%s passed before and now fails: %s", precondition, why)
	}
	return fmt.Sprintf("%s still fails after %s: %s", precondition, v.timeout, why)
}

// evaluatePreConditionsIfFailed evaluates the preconditions of an execution that failed because its
// account lacks rights or its target is missing. Conditions may be about exactly that, and the
// requester finds the results in the status. The conditions see only data that was read, and do not
// change the failure. A requester without permission for the action gets no results.
func (r *round) evaluatePreConditionsIfFailed(ctx context.Context) error {
	failure := r.out.Failed
	if failure == nil || r.requesterDenied {
		return nil
	}
	if failure.Detail != v1alpha1.DetailRBACDenied && failure.Detail != v1alpha1.DetailTargetNotFound {
		return nil
	}
	conditions := r.ke.Spec.PreConditions
	if len(conditions) == 0 || len(r.out.Results.PreConditionResults) > 0 {
		return nil
	}
	releaseSlot, err := r.takeEvaluationSlot(len(conditions))
	if err != nil {
		return err
	}
	defer releaseSlot()
	if err := r.gatherClusterState(ctx); err != nil {
		return err
	}
	r.input = r.state.Input()
	verdicts, err := r.evaluateConditions(ctx, conditions, timing{begun: r.now, now: r.now, once: true})
	if err != nil {
		return err
	}
	for _, v := range verdicts {
		r.out.Results.PreConditionResults = append(r.out.Results.PreConditionResults, v.result)
	}
	return nil
}

// EvaluatePostConditions evaluates the postconditions of an action that ended at actionEnded. The wait is
// non-zero while some do not hold and have time left. Zero means that the results are final.
func (c *Checker) EvaluatePostConditions(ctx context.Context, ke *v1alpha1.KubernetesExecution, actionEnded, now time.Time) (
	results []v1alpha1.ConditionResult, wait time.Duration, err error,
) {
	conditions := ke.Spec.PostConditions
	if len(conditions) == 0 {
		return nil, 0, nil
	}
	request, err := action.Parse(&ke.Spec)
	if err != nil {
		return nil, 0, fmt.Errorf("evaluate postconditions: %w", err)
	}
	r := &round{checker: c, ke: ke, now: now, request: request, plan: ke.Status.Plan}
	r.account = account{identities: c.deps.Identities, namespace: c.cfg.Namespace, request: request, out: &r.out}
	releaseSlot, err := r.takeEvaluationSlot(len(conditions))
	if err != nil {
		return nil, 0, err
	}
	defer releaseSlot()

	unreadableReason, err := r.gatherAfterAction(ctx)
	if err != nil {
		return nil, 0, err
	}
	stored := storedValidationResults(ke)
	r.input = r.state.Input()
	if r.plan != nil {
		r.input.Plan = PlanInput(r.plan, stored.DryRunResults)
	}
	verdicts, err := r.evaluateConditions(ctx, conditions, timing{
		begun:            actionEnded,
		now:              now,
		defaultTimeout:   postConditionTimeout,
		unreadableReason: unreadableReason,
		before:           stored.PostConditionResults,
	})
	if err != nil {
		return nil, 0, err
	}
	results = make([]v1alpha1.ConditionResult, len(verdicts))
	for i, v := range verdicts {
		results[i] = v.result
	}
	return results, nextEvaluationDelay(verdicts), nil
}

// gatherAfterAction reads the target and the cluster for the postconditions. unreadableReason is as of
// readTarget.
func (r *round) gatherAfterAction(ctx context.Context) (unreadableReason string, err error) {
	target := r.request.Target
	denied, err := r.account.listMissingRights(ctx)
	if err != nil {
		return "", err
	}
	r.account.permitted = len(denied) == 0
	live, unreadableReason, err := r.checker.readTarget(ctx, r.request)
	if err != nil {
		return "", err
	}
	namespace, err := r.checker.readNamespace(ctx, target.Namespace, live)
	if err != nil {
		return "", err
	}
	r.target = targetView{live: live, space: namespace, shield: r.checker.protectionReason(target, namespace, live)}
	return unreadableReason, r.gatherClusterState(ctx)
}

// PostConditionDeadline returns the deadline of a postcondition for an action that ended at since.
func PostConditionDeadline(c v1alpha1.Condition, since time.Time) time.Time {
	return since.Add(conditionTimeout(c, postConditionTimeout))
}

// conditionTimeout returns the time that a condition has to become true.
func conditionTimeout(c v1alpha1.Condition, defaultTimeout time.Duration) time.Duration {
	if c.Timeout == nil {
		return defaultTimeout
	}
	return min(c.Timeout.Duration, MaxConditionTimeout)
}

// storedValidationResults returns the recorded results of the previous check.
func storedValidationResults(ke *v1alpha1.KubernetesExecution) v1alpha1.ValidationResults {
	if v := ke.Status.ValidationResults; v != nil {
		return *v
	}
	return v1alpha1.ValidationResults{}
}

// buildConditionInput returns the input of the given conditions. secretsUnknownReason is the reason why
// invalid Secrets are unknown; empty if they are known or not needed.
func (r *round) buildConditionInput(ctx context.Context, conditions []v1alpha1.Condition) (
	input json.RawMessage, secretsUnknownReason string, err error,
) {
	pods, err := listTargetPods(ctx, r.checker.deps.Reader, r.state)
	if err != nil {
		return nil, "", err
	}
	if slices.ContainsFunc(conditions, usesInvalidSecrets) {
		identities := r.checker.deps.Identities
		r.state.InvalidSecrets, secretsUnknownReason, err = findMissingOrWrongTypeSecrets(ctx, identities, r.target.live, r.request.Target)
		if err != nil {
			return nil, "", err
		}
	}
	input, err = r.state.ConditionInput(r.input, r.plan, pods)
	return input, secretsUnknownReason, err
}

// readTarget reads the present target as the account of the action. A deleted target is an ordinary
// state. If the account may no longer read it, unreadableReason says why, and no condition can hold.
func (c *Checker) readTarget(ctx context.Context, request action.Request) (
	live *unstructured.Unstructured, unreadableReason string, err error,
) {
	t := request.Target
	if request.Action.NoJob || t.Kind == "" {
		return nil, "", nil
	}
	accountClient, err := c.deps.Identities.Client(ctx, request.Action)
	if err == nil {
		live, err = getObjectOrNil(ctx, accountClient.Dynamic, t)
	}
	_, accountMissing := errors.AsType[*roles.MissingError](err)
	switch {
	case accountMissing || apierrors.IsForbidden(err):
		return live, err.Error(), nil
	case err != nil:
		return nil, "", fmt.Errorf("read %s: %w", formatTarget(t), err)
	}
	return live, "", nil
}

// getObjectOrNil reads a target, or returns nil if it does not exist.
func getObjectOrNil(ctx context.Context, c dynamic.Interface, t v1alpha1.Target) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	// All kinds of the catalogue have regular plurals.
	resource, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(t.APIVersion, t.Kind))
	objects := dynamic.ResourceInterface(c.Resource(resource))
	if t.Namespace != "" {
		objects = c.Resource(resource).Namespace(t.Namespace)
	}
	live, err := objects.Get(ctx, t.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // one that is gone is no error
	}
	return live, err
}
