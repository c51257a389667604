package action

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// send sends one step. resourceVersion is the state that it is for; empty is
// any. The error is the API's, so that the caller can tell a conflict from an
// object that is gone, or a *halt.
func (w *work) send(ctx context.Context, step v1alpha1.PlanStep, resourceVersion string) (*unstructured.Unstructured, error) {
	resource, err := resourceOfStep(step)
	if err != nil {
		return nil, err
	}
	var answer *unstructured.Unstructured
	bound := requestTimeout
	if step.Verb == verbEvict {
		bound = evictionTimeout
	}
	err = w.tryFor(ctx, bound, func(ctx context.Context) error {
		var err error
		answer, err = w.request(ctx, step, resource, resourceVersion)
		switch {
		case err == nil:
			w.unsure = false
		case passing(err):
			w.lost = true
			w.unsure = w.unsure || !apierrors.IsTooManyRequests(err)
		}
		return err
	})
	return answer, err
}

// request is one request.
func (w *work) request(ctx context.Context, step v1alpha1.PlanStep, resource schema.GroupVersionResource, resourceVersion string) (*unstructured.Unstructured, error) {
	objects := w.client.on(resource, step.Namespace)
	var subresources []string
	if step.Subresource != "" {
		subresources = []string{step.Subresource}
	}
	switch step.Verb {
	case verbPatch:
		body, err := guarded(step, resourceVersion)
		if err != nil {
			return nil, halted(CodeInvalid, "%s", err)
		}
		o := metav1.PatchOptions{DryRun: w.dryRun(), FieldManager: w.manager, Force: w.force}
		return objects.Patch(ctx, step.Name, types.PatchType(step.PatchType), body, o, subresources...)
	case verbCreate:
		object, err := w.objectOf(step)
		if err != nil {
			return nil, err
		}
		return objects.Create(ctx, object, metav1.CreateOptions{DryRun: w.dryRun(), FieldManager: w.manager}, subresources...)
	case verbDelete:
		o, err := w.deletion(step)
		if err != nil {
			return nil, err
		}
		return nil, objects.Delete(ctx, step.Name, o, subresources...)
	case verbEvict:
		return w.evict(ctx, step, resource)
	}
	return nil, halted(CodeInvalid, "%s: unsupported verb %s", step.Description, step.Verb)
}

// objectOf is the object that a step creates.
func (w *work) objectOf(step v1alpha1.PlanStep) (*unstructured.Unstructured, error) {
	var body map[string]any
	if err := utiljson.Unmarshal([]byte(step.Body), &body); err != nil || body == nil {
		return nil, halted(CodeInvalid, "%s: the body is not an object", step.Description)
	}
	return &unstructured.Unstructured{Object: body}, nil
}

// deletion are the options of a delete: for the one object that is meant.
func (w *work) deletion(step v1alpha1.PlanStep) (metav1.DeleteOptions, error) {
	var o metav1.DeleteOptions
	if step.Body != "" {
		if err := json.Unmarshal([]byte(step.Body), &o); err != nil {
			return o, halted(CodeInvalid, "%s: the body is not valid delete options", step.Description)
		}
	}
	if step.UID != "" {
		o.Preconditions = &metav1.Preconditions{UID: &step.UID}
	}
	o.DryRun = w.dryRun()
	return o, nil
}

// evict asks for a Pod to leave, which a disruption budget can refuse.
func (w *work) evict(ctx context.Context, step v1alpha1.PlanStep, pods schema.GroupVersionResource) (*unstructured.Unstructured, error) {
	o, err := w.deletion(step)
	if err != nil {
		return nil, err
	}
	options, err := members(o)
	if err != nil {
		return nil, halted(CodeInvalid, "%s: %s", step.Description, err)
	}
	eviction := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion":    "policy/v1",
		"kind":          "Eviction",
		"metadata":      map[string]any{"name": step.Name, "namespace": step.Namespace},
		"deleteOptions": options,
	}}
	_, err = w.client.on(pods, step.Namespace).Create(ctx, eviction, metav1.CreateOptions{DryRun: w.dryRun()}, "eviction")
	return nil, err
}

// members is a value as the members of an object.
func members(value any) (map[string]any, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var all map[string]any
	return all, utiljson.Unmarshal(raw, &all)
}

// get reads one object.
func (w *work) get(ctx context.Context, t v1alpha1.Target) (live *unstructured.Unstructured, err error) {
	err = w.try(ctx, func(ctx context.Context) error {
		var err error
		live, err = w.client.read(ctx, t)
		return err
	})
	return live, err
}

// list reads the objects of a resource; an empty namespace is all of them.
func (w *work) list(ctx context.Context, resource schema.GroupVersionResource, namespace string, o metav1.ListOptions) (all *unstructured.UnstructuredList, err error) {
	err = w.try(ctx, func(ctx context.Context) error {
		var err error
		all, err = w.client.on(resource, namespace).List(ctx, o)
		return err
	})
	return all, err
}

// try makes a request, and makes it again while that may do better. A request
// under way is not given up when the attempt is cancelled: what comes of it
// would not be known.
func (w *work) try(ctx context.Context, request func(ctx context.Context) error) error {
	return w.tryFor(ctx, requestTimeout, request)
}

// tryFor is try with another bound for each request.
func (w *work) tryFor(ctx context.Context, bound time.Duration, request func(ctx context.Context) error) error {
	policy := backoff.Policy{Initial: 200 * time.Millisecond, Max: 5 * time.Second}
	for try := 1; ; try++ {
		if err := stopped(ctx); err != nil {
			return err
		}
		err := w.onceFor(ctx, bound, request)
		if err == nil || !passing(err) {
			return err
		}
		if over := stopped(ctx); over != nil {
			return over
		}
		if try == maxTries {
			return halted(CodeTransient, "tried %d times: %s", try, err)
		}
		delay := policy.Delay(try - 1)
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			delay = max(delay, min(time.Duration(seconds)*time.Second, policy.Max))
		}
		if err = w.pause(ctx, delay); err != nil {
			return err
		}
	}
}

// once bounds a request by its own time, and by the attempt's deadline.
func (w *work) once(ctx context.Context, request func(ctx context.Context) error) error {
	return w.onceFor(ctx, requestTimeout, request)
}

// onceFor is once with another bound.
func (w *work) onceFor(ctx context.Context, bound time.Duration, request func(ctx context.Context) error) error {
	end := time.Now().Add(bound)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	return request(ctx)
}

// pause waits, unless the attempt ends.
func (w *work) pause(ctx context.Context, d time.Duration) error {
	if err := backoff.Sleep(ctx, d); err != nil {
		return stopped(ctx)
	}
	return nil
}

// stopped halts between two requests.
func stopped(ctx context.Context) error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errDeadline), errors.Is(err, context.DeadlineExceeded):
		return halted(CodeDeadline, "%s", errDeadline)
	}
	return halted(CodeCancelled, "cancelled")
}

// passing says whether an error may pass by itself: the server is busy or
// broken, or was not reached.
func passing(err error) bool {
	if _, ours := errors.AsType[*halt](err); ours {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError || apierrors.IsTimeout(err)
}

// why is an error of the API as what it means for the attempt.
func (w *work) why(doing string, err error) error {
	if h, ok := errors.AsType[*halt](err); ok {
		return halted(h.code, "%s: %s", doing, h.message)
	}
	code := CodeInvalid
	switch {
	case deniedByAdmission(err):
		code = CodeDenied
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		code = CodeForbidden
	case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsGone(err):
		code = CodeGuard
	case apierrors.IsConflict(err), passing(err):
		code = CodeTransient
	}
	return halted(code, "%s: %s", doing, err)
}

// deniedByAdmission says whether a request was allowed and valid, and refused all
// the same: by a webhook, a policy, a quota or another plugin. Plugins answer with
// whatever code they like, so that their words tell.
func deniedByAdmission(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	text := status.Status().Message
	if strings.Contains(text, "admission webhook ") && strings.Contains(text, " denied the request") || strings.Contains(text, "ValidatingAdmissionPolicy ") && strings.Contains(text, " denied request") {
		return true
	}
	// What the authorizer refuses, it says of a user: User "x" cannot patch …
	return apierrors.IsForbidden(err) && !strings.Contains(text, `" cannot `)
}
