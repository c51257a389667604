package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// timing states when and how conditions are evaluated.
type timing struct {
	begun, now     time.Time
	defaultTimeout time.Duration
	once           bool // conditions that do not hold are not evaluated again

	unreadableReason     string // reason why the input is unknown; empty if it is known
	secretsUnknownReason string // as of buildConditionInput

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
	input, secretsUnknownReason, err := r.buildConditionInput(ctx, conditions)
	if err != nil {
		return nil, err
	}
	t.secretsUnknownReason = secretsUnknownReason
	verdicts := make([]verdict, 0, len(conditions))
	for i, condition := range conditions {
		var v verdict
		if i < len(t.before) && t.before[i].Killed { // it would be killed again
			v = verdict{timeout: conditionTimeout(condition, t.defaultTimeout), result: t.before[i], final: true}
		} else {
			v, err = t.judgeCondition(ctx, r.place, condition, input)
			if err != nil {
				return nil, err
			}
		}
		verdicts = append(verdicts, v)
		if v.result.Killed && condition.Required {
			return verdicts, nil
		}
	}
	return verdicts, nil
}

// judgeCondition evaluates a condition, and decides when it is evaluated again. An error means that the
// evaluation was inconclusive.
func (t timing) judgeCondition(
	ctx context.Context, place execution.Place, condition v1alpha1.Condition, input json.RawMessage,
) (verdict, error) {
	attempt, next := currentAttempt(t.begun, t.now)
	v := verdict{
		timeout: conditionTimeout(condition, t.defaultTimeout),
		result: v1alpha1.ConditionResult{
			ConditionType:  condition.Type,
			Required:       condition.Required,
			Attempts:       attempt,
			EvaluationTime: toAPITime(t.now),
		},
	}
	passed, message, err := t.evaluateCondition(ctx, place, condition, input)
	switch {
	case isInconclusive(ctx, err):
		return verdict{}, fmt.Errorf("evaluate condition %q: %w", condition.Type, err)
	case err != nil: // an error never counts as success
		v.result.ErrorMessage = action.TruncateText(err.Error(), maxConditionMessage)
		v.result.Killed = errors.Is(err, execution.ErrKilled)
		v.final = v.result.Killed || errors.Is(err, execution.ErrMalformed)
	case passed:
		v.result.Evaluated = true
		v.result.Passed = true
	default:
		v.result.Evaluated = true
		v.result.ErrorMessage = action.TruncateText(cmp.Or(message, "allow is false"), maxConditionMessage)
	}

	mayPassLater := !v.result.Passed && !v.final && !t.once
	end := t.begun.Add(v.timeout)
	if mayPassLater && t.now.Before(end) {
		v.again = min(next.Sub(t.now), end.Sub(t.now))
	}
	return v, nil
}

// isInconclusive reports whether an error leaves the condition undecided.
func isInconclusive(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	_, retry := errors.AsType[*execution.RetryError](err)
	return retry || ctx.Err() != nil
}

// evaluateCondition evaluates one condition. A condition whose input is unknown cannot hold.
func (t timing) evaluateCondition(
	ctx context.Context, place execution.Place, c v1alpha1.Condition, input json.RawMessage,
) (passed bool, message string, err error) {
	switch {
	case t.unreadableReason != "":
		return false, "", errors.New(t.unreadableReason)
	case t.secretsUnknownReason != "" && usesInvalidSecrets(c):
		return false, "", errors.New(t.secretsUnknownReason)
	}
	return place.EvaluateModule(ctx, c.Rego, input, t.now)
}

// nextEvaluationDelay returns the delay until the earliest evaluation of a condition that can still become
// true. After a required condition was killed, it returns zero.
func nextEvaluationDelay(verdicts []verdict) time.Duration {
	var wait time.Duration
	for _, v := range verdicts {
		if v.result.Killed && v.result.Required {
			return 0
		}
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
	const maxPause = 10 * time.Second
	pause := time.Second
	attempt, nextAt = 1, begun.Add(pause)
	for !now.Before(nextAt) {
		pause = min(2*pause, maxPause)
		if pause == maxPause { // the remaining attempts have a constant interval: skip those that have passed
			passed := now.Sub(nextAt) / maxPause
			attempt += int32(min(passed, 1<<20)) //nolint:gosec // bounded
			nextAt = nextAt.Add(now.Sub(nextAt).Truncate(maxPause))
		}
		attempt++
		nextAt = nextAt.Add(pause)
	}
	return attempt, nextAt
}
