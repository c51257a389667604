package action

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	// fieldManager is the name of the executor in managedFields.
	fieldManager = "fleetloop-executor"

	// Maximum number of tries of a request within an attempt, and of reads of an
	// object after a conflict.
	maxTries     = 5
	maxConflicts = 10
)

// errDeadline is the cancellation cause of an attempt after its deadline.
var errDeadline = errors.New("the deadline of the attempt has passed")

// An attemptState is the state of one attempt at a plan or its dry run.
type attemptState struct {
	client Client
	plan   *v1alpha1.Plan
	run    Run

	sender stepSender
	report report
	note   string // reason why nothing had to be done
}

// newAttempt creates the state of an attempt. It sends nothing.
func newAttempt(c Client, pl *v1alpha1.Plan, r Run) *attemptState {
	return &attemptState{
		client: c,
		plan:   pl,
		run:    r,
		sender: stepSender{client: c, manager: fieldManager, dry: r.dry},
		report: report{dry: r.dry, output: r.Output},
	}
}

// A halt is the error that stops an attempt early.
type halt struct {
	code    Code
	message string
}

// Error returns the message.
func (h *halt) Error() string { return h.message }

func newHalt(code Code, format string, args ...any) error {
	return &halt{code: code, message: fmt.Sprintf(format, args...)}
}

// An expectation is the required state of the target before a plan is sent.
type expectation struct {
	// values returns the fields stored as "before" in the plan.
	values func(live *unstructured.Unstructured) map[string]any
	// alreadyDesired reports whether a new plan would have no steps. Nil means never.
	alreadyDesired func(ctx context.Context, live *unstructured.Unstructured) bool
}

func (expected expectation) isAlreadyDesired(ctx context.Context, live *unstructured.Unstructured) bool {
	return expected.alreadyDesired != nil && expected.alreadyDesired(ctx, live)
}

// readAndCheckTarget reads the target and reports whether everything is done already. It halts if the
// object or its values differ from the plan. live is nil if the plan has no target or no existing
// one.
func (w *attemptState) readAndCheckTarget(
	ctx context.Context,
	expected expectation,
) (live *unstructured.Unstructured, done bool, err error) {
	t := planTarget(w.plan)
	if t.Kind == "" {
		return nil, false, nil
	}
	live, err = w.client.getObjectWithRetry(ctx, t)
	switch {
	case apierrors.IsNotFound(err) && t.UID == "":
		live = nil
	case apierrors.IsNotFound(err) && deletesOrEvictsTarget(w.plan) && w.mayHaveActedBefore():
		w.note = formatTarget(t) + " is gone"
		return nil, true, nil
	case err != nil:
		return nil, false, toHalt("read "+formatTarget(t), err)
	}
	done, err = w.checkTargetAgainstPlan(ctx, expected, live)
	return live, done, err
}

// checkTargetAgainstPlan reports whether the present target is done, and halts if it does not match the
// plan.
func (w *attemptState) checkTargetAgainstPlan(
	ctx context.Context,
	expected expectation,
	live *unstructured.Unstructured,
) (done bool, err error) {
	target := formatTarget(planTarget(w.plan))

	// An earlier attempt of this execution may have done everything.
	if live != nil && w.mayHaveActedBefore() && w.hasMarker(live) {
		done, err = w.isPlanDone(ctx, expected, live)
		if done || err != nil {
			w.note = target + " was already changed by this execution"
			return done, err
		}
	}

	// The target must be the object that was planned for.
	if live != nil {
		done, err = w.checkTargetIdentity(live)
		if done || err != nil {
			return done, err
		}
	}

	// Its values must be those before the plan, or those that a new plan would leave.
	differences := describeDifferences(decodeValues(w.plan.Before), expected.values(live))
	if len(differences) == 0 {
		if len(w.plan.Steps) == 0 {
			w.note = target + " already has the desired state"
			return true, nil
		}
		return false, w.haltIfReverted(live)
	}
	if live != nil && expected.isAlreadyDesired(ctx, live) {
		done, err = w.areOtherStepsDone(ctx)
		if done || err != nil {
			w.note = target + " already has the desired state"
			return done, err
		}
	}
	return false, newHalt(CodeGuard, "%s has changed since the action was planned: %s",
		target, TruncateText(strings.Join(differences, "; "), maxFields))
}

// checkTargetIdentity halts if an object is not the one that was planned for, or is being deleted. If the
// plan removes the target, it reports that the target is gone already.
func (w *attemptState) checkTargetIdentity(live *unstructured.Unstructured) (done bool, err error) {
	t := planTarget(w.plan)
	removesTarget := deletesOrEvictsTarget(w.plan)
	switch {
	case t.UID == "":
		return false, newHalt(CodeGuard, "%s now exists, but did not when the action was planned", formatTarget(t))
	case live.GetUID() != t.UID && removesTarget && w.mayHaveActedBefore():
		w.note = formatTarget(t) + " has been replaced"
		return true, nil
	case live.GetUID() != t.UID:
		return false, newHalt(CodeGuard, "%s has UID %s, but the action was planned for UID %s",
			formatTarget(t), live.GetUID(), t.UID)
	case live.GetDeletionTimestamp() != nil && removesTarget:
		w.note = formatTarget(t) + " is being deleted"
		return true, nil
	case live.GetDeletionTimestamp() != nil:
		return false, newHalt(CodeGuard, "%s is being deleted", formatTarget(t))
	}
	return false, nil
}

// isPlanDone reports whether the target and all other objects are as the plan leaves them. The
// marker alone proves nothing: the UID of an execution is public, and any user with write access to
// the target can set it.
func (w *attemptState) isPlanDone(ctx context.Context, expected expectation, live *unstructured.Unstructured) (done bool, err error) {
	if t := planTarget(w.plan); t.UID != "" && live.GetUID() != t.UID {
		return false, nil
	}
	if !hasExpectedValues(w.plan, expected, live) && !expected.isAlreadyDesired(ctx, live) {
		return false, nil
	}
	return w.areOtherStepsDone(ctx)
}

// hasExpectedValues reports whether the target has the values after the plan.
func hasExpectedValues(p *v1alpha1.Plan, expected expectation, live *unstructured.Unstructured) bool {
	rollback := p.Rollback
	if rollback == nil || rollback.ExpectedCurrentValues == nil {
		return false
	}
	differences := describeDifferences(decodeValues(rollback.ExpectedCurrentValues), expected.values(live))
	return len(differences) == 0
}

// areOtherStepsDone reports whether the steps for objects other than the target are done. Created objects
// must match their step, and deleted ones must be gone.
func (w *attemptState) areOtherStepsDone(ctx context.Context) (done bool, err error) {
	for _, step := range w.plan.Steps {
		if isStepForTarget(w.plan, step) || step.Verb != verbCreate && step.Verb != verbDelete {
			continue
		}
		t := objectOfStep(step)
		live, err := w.client.getObjectWithRetry(ctx, t)
		exists := !apierrors.IsNotFound(err)
		if err != nil && exists {
			return false, toHalt("read "+formatTarget(t), err)
		}
		stepDone := !exists || live.GetUID() != step.UID // deleted
		if step.Verb == verbCreate {
			stepDone = exists && matchesCreateStep(step, live)
		}
		if !stepDone {
			return false, nil
		}
	}
	return true, nil
}

// matchesCreateStep reports whether an object is as a step creates it, with the marker of this execution.
// Its metadata may contain more, because the API server adds some.
func matchesCreateStep(step v1alpha1.PlanStep, live *unstructured.Unstructured) bool {
	object, err := decodeStepObject(step)
	if err != nil {
		return false
	}
	for part, wanted := range object.Object {
		fields, _ := wanted.(map[string]any)
		has, _ := live.Object[part].(map[string]any)
		bothEmpty := fields != nil && len(fields)+len(has) == 0 // the API server drops empty values
		matches := bothEmpty || canonicalValue(live.Object[part]) == canonicalValue(wanted)
		if part == "metadata" {
			matches = hasAllFields(has, fields)
		}
		if !matches {
			return false
		}
	}
	return true
}

// hasAllFields reports whether an object has all fields of another. Lists are compared as a whole.
func hasAllFields(object, fields map[string]any) bool {
	return canonicalValue(selectFields(fields, object)) == canonicalValue(fields)
}

// haltIfReverted returns an error if an earlier attempt may have acted and been reverted. The values
// alone cannot show that, because they are those from before. If the plan marks its target, the
// marker decides.
func (w *attemptState) haltIfReverted(live *unstructured.Unstructured) error {
	if !w.mayHaveActedBefore() || live == nil {
		return nil
	}
	plannedGeneration := w.plan.Target.Generation
	unchanged := plannedGeneration == 0 || live.GetGeneration() == plannedGeneration || setsMarkerOnTarget(w.plan)
	if unchanged && !w.hasMarker(live) { // with the marker, its changes are missing
		return nil
	}
	return newHalt(CodeGuard, "%s was changed and changed back since the action was planned: "+
		"an earlier attempt may have been reverted", formatTarget(planTarget(w.plan)))
}

// hasMarker reports whether an object carries the marker of this execution. Other users may have
// set it: see isPlanDone.
func (w *attemptState) hasMarker(o *unstructured.Unstructured) bool {
	uid := string(w.run.Subject.UID)
	return uid != "" && o.GetAnnotations()[v1alpha1.AnnotationLastExecution] == uid
}

// mayHaveActedBefore reports whether completed work can be from this execution.
func (w *attemptState) mayHaveActedBefore() bool { return w.run.Attempt > 1 || w.sender.lost }

// sendPlanSteps sends the steps in order, checking the target against an expectation.
func (w *attemptState) sendPlanSteps(ctx context.Context, expected expectation, did string) error {
	live, done, err := w.readAndCheckTarget(ctx, expected)
	if err != nil {
		return err
	}
	if done {
		w.recordAlreadyDone(live, expected, did)
		return nil
	}
	for _, step := range w.plan.Steps {
		if live != nil && isStepForTarget(w.plan, step) {
			err = w.sendStepToTargetWithRetry(ctx, expected, live, step, did)
		} else {
			err = w.sendStepToOtherObject(ctx, step, did)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sendStepToTargetWithRetry sends a step for the target as it was read.
func (w *attemptState) sendStepToTargetWithRetry(
	ctx context.Context,
	expected expectation,
	live *unstructured.Unstructured,
	step v1alpha1.PlanStep,
	did string,
) error {
	policy := backoff.Policy{Initial: 20 * time.Millisecond, Max: time.Second}
	for try := 0; ; try++ {
		answer, err := w.sender.sendStepWithRetry(ctx, adaptMarkerOperation(step, live), live.GetResourceVersion())
		if err == nil {
			w.report.recordChange(newAffectedResource(live, answer, expected, did, step.Verb))
			return nil
		}
		removes := step.Verb == verbDelete || step.Verb == verbEvict
		if removes && apierrors.IsNotFound(err) && w.mayHaveActedBefore() {
			w.report.recordChange(newAffectedResource(live, nil, expected, did, step.Verb))
			return nil
		}
		// A concurrent change can make an operation of a JSON patch invalid.
		mayFitNewState := apierrors.IsConflict(err) || apierrors.IsInvalid(err)
		if !mayFitNewState || try == maxConflicts {
			return toHalt(step.Description, err)
		}
		if over := sleepUnlessEnded(ctx, policy.Delay(try)); over != nil {
			return over
		}
		fresh, done, over := w.readAndCheckTarget(ctx, expected)
		switch {
		case over != nil:
			return over
		case done:
			w.recordAfterFailedWrite(live, fresh, expected, did, step.Verb)
			return nil
		case apierrors.IsInvalid(err) && fresh.GetResourceVersion() == live.GetResourceVersion():
			return toHalt(step.Description, err)
		}
		live = fresh
	}
}

// recordAfterFailedWrite records a target that is in the planned state after a write that seemed to fail.
// Either that write or a foreign change caused it.
func (w *attemptState) recordAfterFailedWrite(live, fresh *unstructured.Unstructured, expected expectation, did, verb string) {
	if w.sender.lost {
		w.report.recordChange(newAffectedResource(live, fresh, expected, did, verb))
		return
	}
	w.recordAlreadyDone(fresh, expected, did)
}

// sendStepToOtherObject sends a step for an object other than the target, or for a new one.
func (w *attemptState) sendStepToOtherObject(ctx context.Context, step v1alpha1.PlanStep, did string) error {
	answer, err := w.sender.sendStepWithRetry(ctx, step, "")
	object := v1alpha1.AffectedResource{
		Kind:      kindOfStep(step),
		Namespace: step.Namespace,
		Name:      step.Name,
		UID:       step.UID,
		Action:    pastParticiple(step.Verb, did),
	}
	switch {
	case apierrors.IsAlreadyExists(err) && step.Verb == verbCreate:
		return w.acceptIfAlreadyCreated(ctx, step, err)
	case apierrors.IsNotFound(err) && step.Verb == verbDelete:
		w.report.logLine(kubectlName(step.APIVersion, object.Kind, step.Name) + " not found")
		return nil
	case err != nil:
		return toHalt(step.Description, err)
	}
	if answer != nil {
		object.UID = answer.GetUID()
		object.ResourceVersionAfter = answer.GetResourceVersion()
	}
	w.report.recordChange(object, step.APIVersion)
	return nil
}

// acceptIfAlreadyCreated handles a create request for an object that already exists.
func (w *attemptState) acceptIfAlreadyCreated(ctx context.Context, step v1alpha1.PlanStep, existsErr error) error {
	t := objectOfStep(step)
	live, err := w.client.getObjectWithRetry(ctx, t)
	if err != nil {
		return toHalt("read "+formatTarget(t), err)
	}
	if w.mayHaveActedBefore() && matchesCreateStep(step, live) {
		w.report.logLine(kubectlName(t.APIVersion, t.Kind, t.Name) + " unchanged")
		return nil
	}
	return toHalt(step.Description, existsErr)
}
