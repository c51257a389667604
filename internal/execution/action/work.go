package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

	// manager is the field manager of writes. force allows server-side apply to take over fields
	// from other managers.
	manager string
	force   *bool

	result Result
	log    []string
	note   string // reason why nothing had to be done
	lost   bool   // a write was sent whose outcome is unknown
	unsure bool   // a write has an unknown outcome, and no later read shows its effect
}

// newAttempt starts an attempt.
func newAttempt(c Client, pl *v1alpha1.Plan, r Run) *attemptState {
	return &attemptState{client: c, plan: pl, run: r, manager: fieldManager}
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
	// idle reports whether a new plan would have no steps. Nil means never.
	idle func(ctx context.Context, live *unstructured.Unstructured) bool
}

func (j expectation) isIdle(ctx context.Context, live *unstructured.Unstructured) bool {
	return j.idle != nil && j.idle(ctx, live)
}

// readAndCheckTarget reads the target and reports whether everything is done already. It halts if the
// object or its values differ from the plan. live is nil if the plan has no target or no existing
// one.
func (w *attemptState) readAndCheckTarget(ctx context.Context, j expectation) (live *unstructured.Unstructured, done bool, err error) {
	t := w.planTarget()
	if t.Kind == "" {
		return nil, false, nil
	}
	live, err = w.getObject(ctx, t)
	switch {
	case apierrors.IsNotFound(err) && t.UID == "":
		live = nil
	case apierrors.IsNotFound(err) && w.removesTarget() && w.isRetry():
		w.note = objectName(t) + " is gone"
		return nil, true, nil
	case err != nil:
		return nil, false, w.explainError("read "+objectName(t), err)
	}
	done, err = w.checkTargetAgainstPlan(ctx, j, live)
	return live, done, err
}

// checkTargetAgainstPlan reports whether the present target is done, and halts if it does not match the
// plan.
func (w *attemptState) checkTargetAgainstPlan(ctx context.Context, j expectation, live *unstructured.Unstructured) (done bool, err error) {
	t := w.planTarget()
	if live != nil && w.isRetry() && w.hasMarker(live) {
		if done, err = w.verifyDone(ctx, j, live); done || err != nil {
			w.note = objectName(t) + " was already changed by this execution"
			return done, err
		}
	}
	if live != nil {
		switch {
		case t.UID == "":
			return false, newHalt(CodeGuard, "%s now exists, but did not when the action was planned", objectName(t))
		case live.GetUID() != t.UID && w.removesTarget() && w.isRetry():
			w.note = objectName(t) + " has been replaced"
			return true, nil
		case live.GetUID() != t.UID:
			return false, newHalt(CodeGuard, "%s has UID %s, but the action was planned for UID %s", objectName(t), live.GetUID(), t.UID)
		case live.GetDeletionTimestamp() != nil && w.removesTarget():
			w.note = objectName(t) + " is being deleted"
			return true, nil
		case live.GetDeletionTimestamp() != nil:
			return false, newHalt(CodeGuard, "%s is being deleted", objectName(t))
		}
	}
	values := j.values(live)
	different := listDifferences(w.valuesBefore(), values)
	if len(different) == 0 {
		if len(w.plan.Steps) == 0 {
			w.note = objectName(t) + " already has the desired state"
			return true, nil
		}
		return false, w.checkNotReverted(live)
	}
	if live != nil && j.isIdle(ctx, live) {
		if done, err = w.otherStepsDone(ctx); done || err != nil {
			w.note = objectName(t) + " already has the desired state"
			return done, err
		}
	}
	return false, newHalt(CodeGuard, "%s has changed since the action was planned: %s", objectName(t), truncateText(strings.Join(different, "; "), maxFields))
}

// verifyDone reports whether the target and all other objects are as the plan leaves them. The
// marker alone proves nothing: the UID of an execution is public, and any user with write access to
// the target can set it.
func (w *attemptState) verifyDone(ctx context.Context, j expectation, live *unstructured.Unstructured) (done bool, err error) {
	if t := w.planTarget(); t.UID != "" && live.GetUID() != t.UID {
		return false, nil
	}
	if !w.hasExpectedValues(j, live) && !j.isIdle(ctx, live) {
		return false, nil
	}
	return w.otherStepsDone(ctx)
}

// hasExpectedValues reports whether the target has the values after the plan.
func (w *attemptState) hasExpectedValues(j expectation, live *unstructured.Unstructured) bool {
	back := w.plan.Rollback
	return back != nil && back.ExpectedCurrentValues != nil && len(listDifferences(decodeValues(back.ExpectedCurrentValues), j.values(live))) == 0
}

// otherStepsDone reports whether the steps for objects other than the target are done. Created objects
// must match their step, and deleted ones must be gone.
func (w *attemptState) otherStepsDone(ctx context.Context) (done bool, err error) {
	for _, step := range w.plan.Steps {
		if w.onTarget(step) || step.Verb != verbCreate && step.Verb != verbDelete {
			continue
		}
		t := v1alpha1.Target{APIVersion: step.APIVersion, Kind: kindOfStep(step), Namespace: step.Namespace, Name: step.Name}
		live, err := w.getObject(ctx, t)
		if apierrors.IsNotFound(err) {
			live, err = nil, nil
		}
		if err != nil {
			return false, w.explainError("read "+objectName(t), err)
		}
		done := live == nil || live.GetUID() != step.UID // deleted
		if step.Verb == verbCreate {
			done = live != nil && w.matchesCreateStep(step, live)
		}
		if !done {
			return false, nil
		}
	}
	return true, nil
}

// matchesCreateStep reports whether an object is as a step creates it, with the marker of this execution.
// Its metadata may contain more, because the API server adds some.
func (w *attemptState) matchesCreateStep(step v1alpha1.PlanStep, live *unstructured.Unstructured) bool {
	object, err := w.objectOf(step)
	if err != nil {
		return false
	}
	for part, wanted := range object.Object {
		fields, _ := wanted.(map[string]any)
		has, _ := live.Object[part].(map[string]any)
		switch {
		case part == "metadata":
			if !coversFields(has, fields) {
				return false
			}
		case fields != nil && len(fields)+len(has) == 0: // the API server drops empty values
		case canonicalValue(live.Object[part]) != canonicalValue(wanted):
			return false
		}
	}
	return true
}

// coversFields reports whether an object has all fields of another. Lists are compared as a whole.
func coversFields(object, fields map[string]any) bool {
	return canonicalValue(selectFields(fields, object)) == canonicalValue(fields)
}

// checkNotReverted returns an error if an earlier attempt may have acted and been reverted. The values
// alone cannot show that, because they are those from before. If the plan marks its target, the
// marker decides.
func (w *attemptState) checkNotReverted(live *unstructured.Unstructured) error {
	planned := w.plan.Target.Generation
	switch {
	case !w.isRetry() || live == nil:
		return nil
	case w.hasMarker(live): // the marker is set, but its changes are missing
	case planned == 0 || live.GetGeneration() == planned || w.marksTarget():
		return nil
	}
	return newHalt(CodeGuard, "%s was changed and changed back since the action was planned: an earlier attempt may have been reverted", objectName(w.planTarget()))
}

// marksTarget reports whether the plan sets the marker on its target.
func (w *attemptState) marksTarget() bool {
	return slices.ContainsFunc(w.plan.Steps, func(s v1alpha1.PlanStep) bool {
		return w.onTarget(s) && strings.Contains(s.Body, v1alpha1.AnnotationLastExecution)
	})
}

// planTarget returns the target of the plan.
func (w *attemptState) planTarget() v1alpha1.Target {
	t := w.plan.Target
	return v1alpha1.Target{APIVersion: t.APIVersion, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, UID: t.UID}
}

// valuesBefore returns the planned values of the target before the action.
func (w *attemptState) valuesBefore() map[string]any { return decodeValues(w.plan.Before) }

// hasMarker reports whether an object carries the marker of this execution. Other users may have
// set it: see verifyDone.
func (w *attemptState) hasMarker(o *unstructured.Unstructured) bool {
	uid := string(w.run.Subject.UID)
	return uid != "" && o.GetAnnotations()[v1alpha1.AnnotationLastExecution] == uid
}

// removesTarget reports whether the plan removes the target.
func (w *attemptState) removesTarget() bool {
	n := len(w.plan.Steps)
	return n > 0 && (w.plan.Steps[n-1].Verb == verbDelete || w.plan.Steps[n-1].Verb == verbEvict) && w.onTarget(w.plan.Steps[n-1])
}

// isRetry reports whether completed work can be from this execution.
func (w *attemptState) isRetry() bool { return w.run.Attempt > 1 || w.lost }

// onTarget reports whether a step applies to the target of the plan.
func (w *attemptState) onTarget(step v1alpha1.PlanStep) bool {
	k, ok := findKind(w.plan.Target.APIVersion, w.plan.Target.Kind)
	return ok && step.Resource == k.Resource && step.APIVersion == k.apiVersion() &&
		step.Namespace == w.plan.Target.Namespace && step.Name == w.plan.Target.Name
}

// sendPlanSteps sends the steps in order, checking the target against an expectation.
func (w *attemptState) sendPlanSteps(ctx context.Context, j expectation, did string) error {
	live, done, err := w.readAndCheckTarget(ctx, j)
	if err != nil {
		return err
	}
	if done {
		w.recordAlreadyDone(live, j, did)
		return nil
	}
	for _, step := range w.plan.Steps {
		if live != nil && w.onTarget(step) {
			err = w.sendToTarget(ctx, j, live, step, did)
		} else {
			err = w.sendToOther(ctx, step, did)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sendToTarget sends a step for the target as it was read.
func (w *attemptState) sendToTarget(ctx context.Context, j expectation, live *unstructured.Unstructured, step v1alpha1.PlanStep, did string) error {
	policy := backoff.Policy{Initial: 20 * time.Millisecond, Max: time.Second}
	for try := 0; ; try++ {
		answer, err := w.sendStep(ctx, refitMarker(step, live), live.GetResourceVersion())
		if err == nil {
			w.recordChange(affectedResource(live, answer, j, did, step.Verb))
			return nil
		}
		if apierrors.IsNotFound(err) && (step.Verb == verbDelete || step.Verb == verbEvict) && w.isRetry() {
			w.recordChange(affectedResource(live, nil, j, did, step.Verb))
			return nil
		}
		// A concurrent change can make an operation of a JSON patch invalid.
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) || try == maxConflicts {
			return w.explainError(step.Description, err)
		}
		if over := w.waitFor(ctx, policy.Delay(try)); over != nil {
			return over
		}
		fresh, done, over := w.readAndCheckTarget(ctx, j)
		switch {
		case over != nil:
			return over
		case done:
			w.recordAfterFailedWrite(live, fresh, j, did, step.Verb)
			return nil
		case apierrors.IsInvalid(err) && fresh.GetResourceVersion() == live.GetResourceVersion():
			return w.explainError(step.Description, err)
		}
		live = fresh
	}
}

// recordAfterFailedWrite records a target that is in the planned state after a write that seemed to fail.
// Either that write or a foreign change caused it.
func (w *attemptState) recordAfterFailedWrite(live, fresh *unstructured.Unstructured, j expectation, did, verb string) {
	if w.lost {
		w.recordChange(affectedResource(live, fresh, j, did, verb))
		return
	}
	w.recordAlreadyDone(fresh, j, did)
}

// sendToOther sends a step for an object other than the target, or for a new one.
func (w *attemptState) sendToOther(ctx context.Context, step v1alpha1.PlanStep, did string) error {
	answer, err := w.sendStep(ctx, step, "")
	object := v1alpha1.AffectedResource{Kind: kindOfStep(step), Namespace: step.Namespace, Name: step.Name, UID: step.UID, Action: actionWord(step.Verb, did)}
	switch {
	case apierrors.IsAlreadyExists(err) && step.Verb == verbCreate:
		return w.acceptIfCreated(ctx, step, err)
	case apierrors.IsNotFound(err) && step.Verb == verbDelete:
		w.logLine(kubectlName(step.APIVersion, object.Kind, step.Name) + " not found")
		return nil
	case err != nil:
		return w.explainError(step.Description, err)
	}
	if answer != nil {
		object.UID, object.ResourceVersionAfter = answer.GetUID(), answer.GetResourceVersion()
	}
	w.recordChange(object, step.APIVersion)
	return nil
}

// acceptIfCreated handles a create request for an object that already exists.
func (w *attemptState) acceptIfCreated(ctx context.Context, step v1alpha1.PlanStep, exists error) error {
	t := v1alpha1.Target{APIVersion: step.APIVersion, Kind: kindOfStep(step), Namespace: step.Namespace, Name: step.Name}
	live, err := w.getObject(ctx, t)
	if err != nil {
		return w.explainError("read "+objectName(t), err)
	}
	if w.isRetry() && w.matchesCreateStep(step, live) {
		w.logLine(kubectlName(t.APIVersion, t.Kind, t.Name) + " unchanged")
		return nil
	}
	return w.explainError(step.Description, exists)
}

// kindOfStep returns the kind of the object of a step.
func kindOfStep(step v1alpha1.PlanStep) string {
	for _, k := range knownKinds() {
		if k.Resource == step.Resource && k.apiVersion() == step.APIVersion {
			return k.kind
		}
	}
	return step.Resource
}

// resourceOfStep returns the resource to which a step is sent.
func resourceOfStep(step v1alpha1.PlanStep) (schema.GroupVersionResource, error) {
	gv, err := schema.ParseGroupVersion(step.APIVersion)
	if err != nil || step.Resource == "" {
		return schema.GroupVersionResource{}, newHalt(CodeInvalid, "%s: a step without a resource", step.Description)
	}
	return gv.WithResource(step.Resource), nil
}

// dryRunOption returns the dry-run option of requests.
func (w *attemptState) dryRunOption() []string {
	if w.run.dry {
		return []string{metav1.DryRunAll}
	}
	return nil
}
