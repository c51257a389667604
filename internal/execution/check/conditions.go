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
	leave, err := r.takeEvaluationSlot(len(r.ke.Spec.PreConditions) + len(r.ke.Spec.PostConditions))
	if err != nil {
		return err
	}
	defer leave()
	known := storedValidationResults(r.ke).PostConditionResults
	for i, c := range r.ke.Spec.PostConditions { // report invalid ones before the action, not after it
		if i < len(known) && known[i].Killed {
			r.out.Results.PostConditionResults = addKilledPostCondition(r.out.Results.PostConditionResults, r.ke.Spec.PostConditions[:i], known[i])
			continue
		}
		err := r.place.CheckModule(ctx, c.Rego)
		switch {
		case err == nil:
		case isInconclusive(ctx, err):
			return fmt.Errorf("compile postcondition %q: %w", c.Type, err)
		case c.Required && errors.Is(err, execution.ErrKilled):
			r.out.failValidation(v1alpha1.DetailConditionKilled, "postcondition %q can never pass: %v", c.Type, err)
			return nil
		case c.Required:
			r.out.failValidation(v1alpha1.DetailInvalidParameters, "postcondition %q can never pass: %v", c.Type, err)
			return nil
		case errors.Is(err, execution.ErrKilled):
			r.out.Results.PostConditionResults = addKilledPostCondition(r.out.Results.PostConditionResults, r.ke.Spec.PostConditions[:i], v1alpha1.ConditionResult{
				ConditionType: c.Type, Killed: true, Attempts: 1, EvaluationTime: toAPITime(r.now), ErrorMessage: action.TruncateText(err.Error(), maxConditionMessage),
			})
		}
	}
	return r.evaluatePreConditions(ctx, timing{begun: execution.PhaseStartOrNow(r.ke, v1alpha1.PhaseValidating, r.now), now: r.now, usual: preConditionTimeout})
}

// addKilledPostCondition adds the result of an optional postcondition whose evaluation was killed, so that it
// is not evaluated again. The results of those before it state that they were not evaluated.
func addKilledPostCondition(results []v1alpha1.ConditionResult, before []v1alpha1.Condition, killed v1alpha1.ConditionResult) []v1alpha1.ConditionResult {
	for _, c := range before[len(results):] {
		results = append(results, v1alpha1.ConditionResult{ConditionType: c.Type, Required: c.Required})
	}
	return append(results, killed)
}

// recheckPreConditions evaluates the preconditions again before the action, because an approval may take long.
// It does not wait for them.
func (r *round) recheckPreConditions(ctx context.Context) error {
	leave, err := r.takeEvaluationSlot(len(r.ke.Spec.PreConditions))
	if err != nil {
		return err
	}
	defer leave()
	return r.evaluatePreConditions(ctx, timing{begun: r.now, now: r.now, once: true})
}

// takeEvaluationSlot takes one evaluation slot for all conditions. With a slot per condition, others
// could come in between, and the results so far would be lost.
func (r *round) takeEvaluationSlot(conditionCount int) (leave func(), err error) {
	if conditionCount == 0 {
		return func() {}, nil
	}
	if r.place, err = r.checker.deps.Conditions.ReservePlace(r.ke.Spec.RequestedBy); err != nil {
		return nil, fmt.Errorf("evaluate conditions: %w", err)
	}
	return r.place.ReleasePlace, nil
}

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
	var broken []string
	for i, v := range verdicts {
		r.out.Results.PreConditionResults = append(r.out.Results.PreConditionResults, v.result)
		if v.hasFailedFinally() && conditions[i].Required {
			broken = append(broken, fmt.Sprintf("precondition %q still fails after %s: %s", conditions[i].Type, v.timeout, v.result.ErrorMessage))
			switch {
			case v.result.Killed:
				detail = v1alpha1.DetailConditionKilled
				broken[len(broken)-1] = fmt.Sprintf("precondition %q: %s; it is not evaluated again: simplify the condition", conditions[i].Type, v.result.ErrorMessage)
			case v.final:
				broken[len(broken)-1] = fmt.Sprintf("precondition %q can never pass: %s", conditions[i].Type, v.result.ErrorMessage)
			case t.once:
				broken[len(broken)-1] = fmt.Sprintf("precondition %q passed before and now fails: %s", conditions[i].Type, v.result.ErrorMessage)
			}
		}
	}
	if len(broken) > 0 {
		r.out.failValidation(detail, "%s", strings.Join(broken, "; "))
		return nil
	}
	r.out.Wait = nextEvaluationDelay(verdicts)
	return nil
}

// evaluatePreConditionsIfFailed evaluates the preconditions of an execution that failed because its account
// lacks rights or its target is missing. Conditions may be about exactly that, and the requester
// finds the results in the status. The conditions see only data that was read, and do not change
// the failure. A requester without permission for the action gets no results.
func (r *round) evaluatePreConditionsIfFailed(ctx context.Context) error {
	f, conditions := r.out.Failed, r.ke.Spec.PreConditions
	if r.stranger || f == nil || f.Detail != v1alpha1.DetailRBACDenied && f.Detail != v1alpha1.DetailTargetNotFound ||
		len(conditions) == 0 || len(r.out.Results.PreConditionResults) > 0 {
		return nil
	}
	leave, err := r.takeEvaluationSlot(len(conditions))
	if err != nil {
		return err
	}
	defer leave()
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
func (c *Checker) EvaluatePostConditions(ctx context.Context, ke *v1alpha1.KubernetesExecution, actionEnded, now time.Time) (results []v1alpha1.ConditionResult, wait time.Duration, err error) {
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
	leave, err := r.takeEvaluationSlot(len(conditions))
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	denied, err := r.account.listMissingRights(ctx)
	if err != nil {
		return nil, 0, err
	}
	r.account.permitted = len(denied) == 0
	live, blind, err := c.readTarget(ctx, request)
	if err != nil {
		return nil, 0, err
	}
	space, err := c.readNamespace(ctx, request.Target.Namespace, live)
	if err != nil {
		return nil, 0, err
	}
	r.target = targetView{live: live, space: space, shield: c.protectionReason(request.Target, space, live)}
	if err := r.gatherClusterState(ctx); err != nil {
		return nil, 0, err
	}
	r.input = r.state.Input()
	if r.plan != nil {
		var dry *v1alpha1.DryRunResults
		if v := ke.Status.ValidationResults; v != nil {
			dry = v.DryRunResults
		}
		r.input.Plan = PlanInput(r.plan, dry)
	}
	verdicts, err := r.evaluateConditions(ctx, conditions, timing{
		begun: actionEnded, now: now, usual: postConditionTimeout, blind: blind, before: storedValidationResults(ke).PostConditionResults,
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

// PostConditionDeadline returns the deadline of a postcondition for an action that ended at actionEnded.
func PostConditionDeadline(c v1alpha1.Condition, since time.Time) time.Time {
	return since.Add(conditionTimeout(c, postConditionTimeout))
}

// conditionTimeout returns the time that a condition has to become true.
func conditionTimeout(c v1alpha1.Condition, usual time.Duration) time.Duration {
	if c.Timeout == nil {
		return usual
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

// buildConditionInput returns the input of the given conditions. secretsUnknown is the reason why invalid
// Secrets are unknown; empty if they are known or not needed.
func (r *round) buildConditionInput(ctx context.Context, conditions []v1alpha1.Condition) (input json.RawMessage, secretsUnknownReason string, err error) {
	pods, err := listTargetPods(ctx, r.checker.deps.Reader, r.state)
	if err != nil {
		return nil, "", err
	}
	if slices.ContainsFunc(conditions, usesInvalidSecrets) {
		if r.state.InvalidSecrets, secretsUnknownReason, err = findInvalidSecrets(ctx, r.checker.deps.Identities, r.target.live, r.request.Target); err != nil {
			return nil, "", err
		}
	}
	input, err = r.state.ConditionInput(r.input, r.plan, pods)
	return input, secretsUnknownReason, err
}

// readTarget reads the present target as the account of the action. A deleted target is an ordinary
// state. If the account may no longer read it, unreadable holds the reason, and no condition can hold.
func (c *Checker) readTarget(ctx context.Context, request action.Request) (live *unstructured.Unstructured, unreadableReason string, err error) {
	t := request.Target
	if request.Action.NoJob || t.Kind == "" {
		return nil, "", nil
	}
	as, err := c.deps.Identities.Client(ctx, request.Action)
	if err == nil {
		live, err = getObjectOrNil(ctx, as.Dynamic, t)
	}
	missing := (*roles.MissingError)(nil)
	switch {
	case errors.As(err, &missing) || apierrors.IsForbidden(err):
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

// timing states when and how conditions are evaluated.
type timing struct {
	begun, now time.Time
	usual      time.Duration // default timeout
	blind      string        // reason why the input is unknown; empty if it is known
	noSecrets  string        // reason why invalid Secrets are unknown; empty if they are known or not needed
	once       bool          // conditions that do not hold are not evaluated again

	before []v1alpha1.ConditionResult // results of the previous evaluation
}

// A verdict is the result of one condition.
type verdict struct {
	result  v1alpha1.ConditionResult
	timeout time.Duration
	again   time.Duration // delay until the next evaluation; zero after the timeout

	final bool // it can never hold, so waiting is pointless
}

// hasFailedFinally reports whether the condition failed and is not evaluated again.
func (v verdict) hasFailedFinally() bool { return !v.result.Passed && v.again == 0 }

// evaluateConditions evaluates all conditions up to the first required one that was killed. The others
// cannot change the outcome then, and each could take as long.
func (r *round) evaluateConditions(ctx context.Context, conditions []v1alpha1.Condition, t timing) ([]verdict, error) {
	input, noSecrets, err := r.buildConditionInput(ctx, conditions)
	if err != nil {
		return nil, err
	}
	t.noSecrets = noSecrets
	attempt, next := currentAttempt(t.begun, t.now)
	verdicts := make([]verdict, len(conditions))
	for i, c := range conditions {
		v := verdict{timeout: conditionTimeout(c, t.usual), result: v1alpha1.ConditionResult{
			ConditionType: c.Type, Required: c.Required, Attempts: attempt, EvaluationTime: toAPITime(t.now),
		}}
		if i < len(t.before) && t.before[i].Killed {
			v.result, v.final = t.before[i], true
			verdicts[i] = v
			if c.Required {
				return verdicts[:i+1], nil
			}
			continue
		}
		passed, message, err := t.evaluateCondition(ctx, r.place, c, input)
		switch {
		case isInconclusive(ctx, err):
			return nil, fmt.Errorf("evaluate condition %q: %w", c.Type, err)
		case err != nil: // an error never counts as success
			v.result.ErrorMessage = action.TruncateText(err.Error(), maxConditionMessage)
			v.result.Killed = errors.Is(err, execution.ErrKilled)
			v.final = v.result.Killed || errors.Is(err, execution.ErrMalformed)
		case passed:
			v.result.Evaluated, v.result.Passed = true, true
		default:
			v.result.Evaluated = true
			if message == "" {
				message = "allow is false"
			}
			v.result.ErrorMessage = action.TruncateText(message, maxConditionMessage)
		}
		if end := t.begun.Add(v.timeout); !t.once && !v.final && !v.result.Passed && t.now.Before(end) {
			v.again = min(next.Sub(t.now), end.Sub(t.now))
		}
		verdicts[i] = v
		if v.result.Killed && c.Required {
			return verdicts[:i+1], nil
		}
	}
	return verdicts, nil
}

// isInconclusive reports whether an error leaves the condition undecided.
func isInconclusive(ctx context.Context, err error) bool {
	retry := (*execution.RetryError)(nil)
	return err != nil && ctx.Err() != nil || errors.As(err, &retry)
}

// evaluateCondition evaluates one condition.
func (t timing) evaluateCondition(ctx context.Context, place execution.Place, c v1alpha1.Condition, input json.RawMessage) (passed bool, message string, err error) {
	switch {
	case t.blind != "":
		return false, "", errors.New(t.blind)
	case t.noSecrets != "" && usesInvalidSecrets(c):
		return false, "", errors.New(t.noSecrets)
	}
	return place.EvaluateModule(ctx, c.Rego, input, t.now)
}

// nextEvaluationDelay returns the delay until the earliest evaluation of a condition that can still become
// true. After a required condition was killed, it returns zero.
func nextEvaluationDelay(verdicts []verdict) time.Duration {
	if last := len(verdicts) - 1; last >= 0 && verdicts[last].result.Killed && verdicts[last].result.Required {
		return 0
	}
	var wait time.Duration
	for _, v := range verdicts {
		if v.again > 0 && (wait == 0 || v.again < wait) {
			wait = v.again
		}
	}
	return wait
}

// currentAttempt returns the number of the present attempt and the time of the next one. The delays
// are 1, 2, 4 and 8 seconds, then 10. Both follow from the clock alone, so a restart neither starts
// over nor evaluates more often.
func currentAttempt(begun, now time.Time) (attempt int32, nextAt time.Time) {
	const most = 10 * time.Second
	pause := time.Second
	attempt, nextAt = 1, begun.Add(pause)
	for !now.Before(nextAt) {
		if pause = min(2*pause, most); pause == most { // the remaining attempts have a constant interval
			passed := now.Sub(nextAt) / most
			attempt += int32(min(passed, 1<<20)) //nolint:gosec // bounded
			nextAt = nextAt.Add(now.Sub(nextAt).Truncate(most))
		}
		attempt++
		nextAt = nextAt.Add(pause)
	}
	return attempt, nextAt
}
