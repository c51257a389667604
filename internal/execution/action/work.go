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
	// fieldManager is how managedFields call us.
	fieldManager = "fleetloop-executor"

	// How often a request is sent again within one attempt, and how often an
	// object is read again after a conflict.
	maxTries     = 5
	maxConflicts = 10
)

// errDeadline is why the context of an attempt ends at its deadline.
var errDeadline = errors.New("the deadline of the attempt has passed")

// A work is one attempt at a plan, or at its dry run.
type work struct {
	client Client
	plan   *v1alpha1.Plan
	run    Run

	// manager is the field manager of writes. force is for server-side apply: it
	// takes fields from other managers.
	manager string
	force   *bool

	result Result
	log    []string
	note   string // why there was nothing to do
	lost   bool   // whether a write went out of which it is not known what came of it
	unsure bool   // whether there is one of which nothing has been seen since
}

// newWork begins an attempt.
func newWork(c Client, pl *v1alpha1.Plan, r Run) *work {
	return &work{client: c, plan: pl, run: r, manager: fieldManager}
}

// A halt is why an attempt ends before its end.
type halt struct {
	code    Code
	message string
}

// Error is the message.
func (h *halt) Error() string { return h.message }

func halted(code Code, format string, args ...any) error {
	return &halt{code: code, message: fmt.Sprintf(format, args...)}
}

// A judge says what the target must be for a plan to be sent.
type judge struct {
	// values are what the plan has as "before".
	values func(live *unstructured.Unstructured) map[string]any
	// idle says whether planning anew would find nothing to do. Nil is never.
	idle func(ctx context.Context, live *unstructured.Unstructured) bool
}

func (j judge) isIdle(ctx context.Context, live *unstructured.Unstructured) bool {
	return j.idle != nil && j.idle(ctx, live)
}

// open reads the target, and says whether all has been done already. It halts
// for another object than was planned for, and for other values. live is nil
// where the plan has no target, or none that exists.
func (w *work) open(ctx context.Context, j judge) (live *unstructured.Unstructured, done bool, err error) {
	t := w.target()
	if t.Kind == "" {
		return nil, false, nil
	}
	live, err = w.get(ctx, t)
	switch {
	case apierrors.IsNotFound(err) && t.UID == "":
		live = nil
	case apierrors.IsNotFound(err) && w.removes() && w.again():
		w.note = named(t) + " is gone"
		return nil, true, nil
	case err != nil:
		return nil, false, w.why("read "+named(t), err)
	}
	done, err = w.judge(ctx, j, live)
	return live, done, err
}

// judge decides about the target as it is.
func (w *work) judge(ctx context.Context, j judge, live *unstructured.Unstructured) (done bool, err error) {
	t := w.target()
	if live != nil && w.again() && w.ours(live) {
		if done, err = w.verify(ctx, j, live); done || err != nil {
			w.note = named(t) + " was already changed by this execution"
			return done, err
		}
	}
	if live != nil {
		switch {
		case t.UID == "":
			return false, halted(CodeGuard, "%s now exists, but did not when the action was planned", named(t))
		case live.GetUID() != t.UID && w.removes() && w.again():
			w.note = named(t) + " has been replaced"
			return true, nil
		case live.GetUID() != t.UID:
			return false, halted(CodeGuard, "%s has UID %s, but the action was planned for UID %s", named(t), live.GetUID(), t.UID)
		case live.GetDeletionTimestamp() != nil && w.removes():
			w.note = named(t) + " is being deleted"
			return true, nil
		case live.GetDeletionTimestamp() != nil:
			return false, halted(CodeGuard, "%s is being deleted", named(t))
		}
	}
	values := j.values(live)
	different := differences(w.before(), values)
	if len(different) == 0 {
		if len(w.plan.Steps) == 0 {
			w.note = named(t) + " already has the desired state"
			return true, nil
		}
		return false, w.undone(live)
	}
	if live != nil && j.isIdle(ctx, live) {
		if done, err = w.othersDone(ctx); done || err != nil {
			w.note = named(t) + " already has the desired state"
			return done, err
		}
	}
	return false, halted(CodeGuard, "%s has changed since the action was planned: %s", named(t), clip(strings.Join(different, "; "), maxFields))
}

// verify says whether the target is as the plan leaves it, with all else that
// the plan writes to. The marker alone proves nothing: everybody can read the
// UID of an execution, and whoever may annotate the target can write it there.
func (w *work) verify(ctx context.Context, j judge, live *unstructured.Unstructured) (bool, error) {
	if t := w.target(); t.UID != "" && live.GetUID() != t.UID {
		return false, nil
	}
	if !w.asExpected(j, live) && !j.isIdle(ctx, live) {
		return false, nil
	}
	return w.othersDone(ctx)
}

// asExpected says whether the target has the values that the plan leads to.
func (w *work) asExpected(j judge, live *unstructured.Unstructured) bool {
	back := w.plan.Rollback
	return back != nil && back.ExpectedCurrentValues != nil && len(differences(valuesOf(back.ExpectedCurrentValues), j.values(live))) == 0
}

// othersDone says whether the steps for other objects than the target are done:
// what they create is there as they create it, and what they delete is gone.
func (w *work) othersDone(ctx context.Context) (bool, error) {
	for _, step := range w.plan.Steps {
		if w.onTarget(step) || step.Verb != verbCreate && step.Verb != verbDelete {
			continue
		}
		t := v1alpha1.Target{APIVersion: step.APIVersion, Kind: kindOfStep(step), Namespace: step.Namespace, Name: step.Name}
		live, err := w.get(ctx, t)
		if apierrors.IsNotFound(err) {
			live, err = nil, nil
		}
		if err != nil {
			return false, w.why("read "+named(t), err)
		}
		done := live == nil || live.GetUID() != step.UID // deleted
		if step.Verb == verbCreate {
			done = live != nil && w.made(step, live)
		}
		if !done {
			return false, nil
		}
	}
	return true, nil
}

// made says whether an object is as a step creates it, with the marker of this
// execution. Of its metadata it may have more: the API server writes some.
func (w *work) made(step v1alpha1.PlanStep, live *unstructured.Unstructured) bool {
	object, err := w.objectOf(step)
	if err != nil {
		return false
	}
	for part, wanted := range object.Object {
		fields, _ := wanted.(map[string]any)
		has, _ := live.Object[part].(map[string]any)
		switch {
		case part == "metadata":
			if !covers(has, fields) {
				return false
			}
		case fields != nil && len(fields)+len(has) == 0: // what is empty is not kept
		case spelled(live.Object[part]) != spelled(wanted):
			return false
		}
	}
	return true
}

// covers says whether an object has all fields of another. Lists are taken as a
// whole.
func covers(object, fields map[string]any) bool {
	return spelled(cut(fields, object)) == spelled(fields)
}

// undone says why it cannot be told that an earlier attempt did nothing, though
// the values are those from before: somebody may have set them back. Where the
// plan marks its target, the marker would tell.
func (w *work) undone(live *unstructured.Unstructured) error {
	planned := w.plan.Target.Generation
	switch {
	case !w.again() || live == nil:
		return nil
	case w.ours(live): // and what it stands for is not there
	case planned == 0 || live.GetGeneration() == planned || w.marks():
		return nil
	}
	return halted(CodeGuard, "%s was changed and changed back since the action was planned: an earlier attempt may have been reverted", named(w.target()))
}

// marks says whether the plan leaves our marker on its target.
func (w *work) marks() bool {
	return slices.ContainsFunc(w.plan.Steps, func(s v1alpha1.PlanStep) bool {
		return w.onTarget(s) && strings.Contains(s.Body, v1alpha1.AnnotationLastExecution)
	})
}

// target is the plan's.
func (w *work) target() v1alpha1.Target {
	t := w.plan.Target
	return v1alpha1.Target{APIVersion: t.APIVersion, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, UID: t.UID}
}

// before are the plan's values of the target.
func (w *work) before() map[string]any { return valuesOf(w.plan.Before) }

// ours says whether an object bears the marker of this execution, which anybody
// may have written: see verify.
func (w *work) ours(o *unstructured.Unstructured) bool {
	uid := string(w.run.Subject.UID)
	return uid != "" && o.GetAnnotations()[v1alpha1.AnnotationLastExecution] == uid
}

// removes says whether the target is gone when all is done.
func (w *work) removes() bool {
	n := len(w.plan.Steps)
	return n > 0 && (w.plan.Steps[n-1].Verb == verbDelete || w.plan.Steps[n-1].Verb == verbEvict) && w.onTarget(w.plan.Steps[n-1])
}

// again says whether what is found done can be our own work.
func (w *work) again() bool { return w.run.Attempt > 1 || w.lost }

// onTarget says whether a step is for the plan's target.
func (w *work) onTarget(step v1alpha1.PlanStep) bool {
	k, ok := resourceOf(w.plan.Target.APIVersion, w.plan.Target.Kind)
	return ok && step.Resource == k.Resource && step.APIVersion == k.apiVersion() &&
		step.Namespace == w.plan.Target.Namespace && step.Name == w.plan.Target.Name
}

// sendAll sends the steps in their order, the target's with a judge.
func (w *work) sendAll(ctx context.Context, j judge, did string) error {
	live, done, err := w.open(ctx, j)
	if err != nil {
		return err
	}
	if done {
		w.found(live, j, did)
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
func (w *work) sendToTarget(ctx context.Context, j judge, live *unstructured.Unstructured, step v1alpha1.PlanStep, did string) error {
	policy := backoff.Policy{Initial: 20 * time.Millisecond, Max: time.Second}
	for try := 0; ; try++ {
		answer, err := w.send(ctx, remarked(step, live), live.GetResourceVersion())
		if err == nil {
			w.did(affected(live, answer, j, did, step.Verb))
			return nil
		}
		if apierrors.IsNotFound(err) && (step.Verb == verbDelete || step.Verb == verbEvict) && w.again() {
			w.did(affected(live, nil, j, did, step.Verb))
			return nil
		}
		// An operation of a JSON patch can be invalid because of a change.
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) || try == maxConflicts {
			return w.why(step.Description, err)
		}
		if over := w.pause(ctx, policy.Delay(try)); over != nil {
			return over
		}
		fresh, done, over := w.open(ctx, j)
		switch {
		case over != nil:
			return over
		case done:
			w.turnedOut(live, fresh, j, did, step.Verb)
			return nil
		case apierrors.IsInvalid(err) && fresh.GetResourceVersion() == live.GetResourceVersion():
			return w.why(step.Description, err)
		}
		live = fresh
	}
}

// turnedOut reports a target that is as it should be after a write that seemed
// to fail: by that write, or by somebody else.
func (w *work) turnedOut(live, fresh *unstructured.Unstructured, j judge, did, verb string) {
	if w.lost {
		w.did(affected(live, fresh, j, did, verb))
		return
	}
	w.found(fresh, j, did)
}

// sendToOther sends a step for another object than the target, or for one that
// did not exist.
func (w *work) sendToOther(ctx context.Context, step v1alpha1.PlanStep, did string) error {
	answer, err := w.send(ctx, step, "")
	object := v1alpha1.AffectedResource{Kind: kindOfStep(step), Namespace: step.Namespace, Name: step.Name, UID: step.UID, Action: doneBy(step.Verb, did)}
	switch {
	case apierrors.IsAlreadyExists(err) && step.Verb == verbCreate:
		return w.alreadyThere(ctx, step, err)
	case apierrors.IsNotFound(err) && step.Verb == verbDelete:
		w.say(kubectlName(step.APIVersion, object.Kind, step.Name) + " not found")
		return nil
	case err != nil:
		return w.why(step.Description, err)
	}
	if answer != nil {
		object.UID, object.ResourceVersionAfter = answer.GetUID(), answer.GetResourceVersion()
	}
	w.did(object, step.APIVersion)
	return nil
}

// alreadyThere is a create that found an object of the name.
func (w *work) alreadyThere(ctx context.Context, step v1alpha1.PlanStep, exists error) error {
	t := v1alpha1.Target{APIVersion: step.APIVersion, Kind: kindOfStep(step), Namespace: step.Namespace, Name: step.Name}
	live, err := w.get(ctx, t)
	if err != nil {
		return w.why("read "+named(t), err)
	}
	if w.again() && w.made(step, live) {
		w.say(kubectlName(t.APIVersion, t.Kind, t.Name) + " unchanged")
		return nil
	}
	return w.why(step.Description, exists)
}

// kindOfStep is the kind of the object that a step is for.
func kindOfStep(step v1alpha1.PlanStep) string {
	for _, k := range kindsOf() {
		if k.Resource == step.Resource && k.apiVersion() == step.APIVersion {
			return k.kind
		}
	}
	return step.Resource
}

// resourceOfStep is where a step is sent.
func resourceOfStep(step v1alpha1.PlanStep) (schema.GroupVersionResource, error) {
	gv, err := schema.ParseGroupVersion(step.APIVersion)
	if err != nil || step.Resource == "" {
		return schema.GroupVersionResource{}, halted(CodeInvalid, "%s: a step without a resource", step.Description)
	}
	return gv.WithResource(step.Resource), nil
}

// dryRun is what a request has as its option.
func (w *work) dryRun() []string {
	if w.run.dry {
		return []string{metav1.DryRunAll}
	}
	return nil
}
