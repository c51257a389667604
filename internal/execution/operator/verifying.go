package operator

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
)

// finishOncePostConditionsDecided evaluates the postconditions until they pass or time out.
func (r *running) finishOncePostConditionsDecided(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	if len(state.ke.Spec.PostConditions) == 0 {
		r.completeOrEnterRollbackReady(state, nil, nil)
		return false, nil
	}
	status := &state.ke.Status
	since := state.now // not the end time that the node reports
	if waiting := findCondition(status, v1alpha1.ConditionPostConditionsMet); waiting != nil {
		since = waiting.LastTransitionTime.Time
	}

	results, wait, err := r.check.EvaluatePostConditions(ctx, state.ke, since, state.now)
	storeResultsIfNewlyKilled(status, nil, results)
	if err != nil {
		if ctx.Err() != nil {
			return false, err
		}
		results = unevaluatedResults(state.ke, err, state.now)
		wait = checkRetryDelayFor(err)
		giveUp := since.Add(maxConditionTimeout(state.ke.Spec.PostConditions)).Add(r.cfg.CheckTimeout)
		if !state.now.Before(giveUp) { // the longest timeout has passed, so the evaluation ends
			wait = 0
		}
	}
	if wait > 0 && !state.ke.Spec.Cancel {
		setPostConditionsWaitStatus(state, results)
		r.watchPlanTarget(state.ke)
		state.requeueIn(wait)
		return false, nil
	}

	ensureValidationResults(status).PostConditionResults = results
	var undecided []bool
	if wait > 0 { // a cancel cut the wait short
		undecided = postConditionsInTime(state.ke, since, state.now)
	}
	r.completeOrEnterRollbackReady(state, results, undecided)
	state.addAfterWrite(func(ctx context.Context) {
		r.events.warnFailedOptionalConditions(ctx, state.ke, "Postcondition", results)
	})
	return false, nil
}

// setPostConditionsWaitStatus writes to the status that the postconditions do not pass yet. It writes only
// once, because each evaluation would otherwise be a write.
func setPostConditionsWaitStatus(state *reconcileState, results []v1alpha1.ConditionResult) {
	status := &state.ke.Status
	if findCondition(status, v1alpha1.ConditionPostConditionsMet) != nil {
		return
	}
	ensureValidationResults(status).PostConditionResults = results
	status.Message = "the action succeeded; waiting for postconditions to pass"
	setCondition(state, v1alpha1.ConditionPostConditionsMet, metav1.ConditionUnknown, "Waiting", status.Message)
}

// watchPlanTarget wakes an execution when the target of its plan changes.
func (r *running) watchPlanTarget(ke *v1alpha1.KubernetesExecution) {
	target := ke.Status.Plan.Target
	r.targets.watchTarget(nameOf(ke), v1alpha1.Target{
		APIVersion: target.APIVersion, Kind: target.Kind, Namespace: target.Namespace, Name: target.Name,
	})
}

// postConditionsInTime returns for each postcondition whether its timeout has not passed yet.
func postConditionsInTime(ke *v1alpha1.KubernetesExecution, since, now time.Time) []bool {
	inTime := make([]bool, len(ke.Spec.PostConditions))
	for i, condition := range ke.Spec.PostConditions {
		inTime[i] = now.Before(check.PostConditionDeadline(condition, since))
	}
	return inTime
}

// maxConditionTimeout returns the longest timeout of the conditions.
func maxConditionTimeout(conditions []v1alpha1.Condition) (longest time.Duration) {
	for _, condition := range conditions {
		if condition.Timeout != nil {
			longest = max(longest, min(condition.Timeout.Duration, check.MaxConditionTimeout))
		}
	}
	return longest
}

// unevaluatedResults returns the results of postconditions that could not be evaluated. A
// postcondition whose evaluation was killed keeps its result.
func unevaluatedResults(ke *v1alpha1.KubernetesExecution, why error, now time.Time) []v1alpha1.ConditionResult {
	var stored, results []v1alpha1.ConditionResult
	if validation := ke.Status.ValidationResults; validation != nil {
		stored = validation.PostConditionResults
	}
	for i, condition := range ke.Spec.PostConditions {
		if i < len(stored) && stored[i].Killed {
			results = append(results, stored[i])
			continue
		}
		results = append(results, v1alpha1.ConditionResult{
			ConditionType:  condition.Type,
			Required:       condition.Required,
			EvaluationTime: toAPITime(now),
			ErrorMessage:   action.TruncateText("evaluation failed: "+why.Error(), maxNote),
		})
	}
	return results
}

// setOutcome sets the outcome of a successful action by its postconditions, and returns the reason for
// the conditions of the status. A required postcondition that a cancel cut short is no failure of the
// action, because it might still have passed.
func setOutcome(
	status *v1alpha1.KubernetesExecutionStatus, results []v1alpha1.ConditionResult, cutShortByCancel []bool,
) (conditionReason string) {
	var failedRequired, undecidedRequired, failedOptional *v1alpha1.ConditionResult
	for i := range results {
		result := &results[i]
		switch {
		case result.Passed:
			continue
		case !result.Required && failedOptional == nil:
			failedOptional = result
		case !result.Required:
			continue // the first one is reported
		case i < len(cutShortByCancel) && cutShortByCancel[i]:
			undecidedRequired = result
		default:
			failedRequired = result
		}
	}

	switch {
	case failedRequired != nil:
		status.Outcome = v1alpha1.OutcomeFailed
		status.Reason = v1alpha1.ReasonPostConditionFailed
		status.ReasonDetail = v1alpha1.Detail(v1alpha1.ReasonPostConditionFailed)
		if failedRequired.Killed {
			status.ReasonDetail = v1alpha1.DetailConditionKilled
		}
		status.Message = postConditionMessage("the action succeeded, but required postcondition %q failed: %s", failedRequired)
		return "PostConditionFailed"
	case undecidedRequired != nil:
		status.Outcome = v1alpha1.OutcomeFailed
		status.Reason = v1alpha1.ReasonCancelled
		status.ReasonDetail = v1alpha1.Detail(v1alpha1.ReasonCancelled)
		status.Message = postConditionMessage(
			"the action succeeded, and the execution was cancelled before postcondition %q passed: %s", undecidedRequired)
		return "Cancelled"
	case failedOptional != nil:
		status.Outcome = v1alpha1.OutcomePartial
		status.Message = postConditionMessage("the action succeeded, but optional postcondition %q failed: %s", failedOptional)
		return "PostConditionWarning"
	}
	status.Outcome = v1alpha1.OutcomeSucceeded
	status.Message = status.Plan.Impact.Description
	return "ActionSucceeded"
}

// postConditionMessage formats the type and the error of a postcondition for the status.
func postConditionMessage(format string, result *v1alpha1.ConditionResult) string {
	return action.TruncateText(fmt.Sprintf(format, result.ConditionType, result.ErrorMessage), maxMessage)
}

// completeOrEnterRollbackReady ends an execution whose action succeeded. undecided marks the postconditions
// that might still have passed.
func (r *running) completeOrEnterRollbackReady(
	state *reconcileState, results []v1alpha1.ConditionResult, undecided []bool,
) {
	status := &state.ke.Status
	reason := setOutcome(status, results, undecided)
	switch {
	case status.Reason == v1alpha1.ReasonCancelled:
		setCondition(state, v1alpha1.ConditionPostConditionsMet, metav1.ConditionUnknown, reason, status.Message)
	case len(results) > 0:
		met := conditionStatus(reason == "ActionSucceeded")
		setCondition(state, v1alpha1.ConditionPostConditionsMet, met, reason, status.Message)
	}

	rollback := status.Plan.Rollback
	if rollback == nil {
		rollback = &v1alpha1.RollbackInformation{Reason: "this action cannot be rolled back"}
	}
	status.RollbackInformation = rollback
	rollbackReason := "NotAvailable"
	if rollback.Available {
		rollbackReason = "Available"
	}
	setCondition(state, v1alpha1.ConditionRollbackAvailable, conditionStatus(rollback.Available), rollbackReason, rollback.Reason)
	succeeded := conditionStatus(status.Outcome != v1alpha1.OutcomeFailed)
	setCondition(state, v1alpha1.ConditionSucceeded, succeeded, reason, status.Message)

	if status.Outcome != v1alpha1.OutcomeFailed && !rollback.Available {
		enterPhase(state, v1alpha1.PhaseCompleted)
		return
	}
	enterPhase(state, v1alpha1.PhaseRollbackReady)
	if state.ke.Spec.Finalize || r.cfg.RollbackWindow == 0 {
		enterFinalPhase(state)
	}
}
