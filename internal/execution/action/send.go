package action

import (
	"context"
	"encoding/json"
	"errors"
	"net"
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

// stepSender sends the steps of plans to the API server.
type stepSender struct {
	client Client
	dry    bool

	// manager is the field manager of writes. force allows server-side apply to take over fields
	// from other managers.
	manager string
	force   *bool

	lost   bool // a write was sent whose outcome is unknown
	unsure bool // a write has an unknown outcome, and no later read shows its effect
}

// sendStepWithRetry sends one step. resourceVersion is the expected state; empty accepts any. The error is
// that of the API, so that the caller can distinguish a conflict from a missing object, or a *halt.
func (s *stepSender) sendStepWithRetry(
	ctx context.Context,
	step v1alpha1.PlanStep,
	resourceVersion string,
) (*unstructured.Unstructured, error) {
	resource, err := resourceOfStep(step)
	if err != nil {
		return nil, err
	}
	var answer *unstructured.Unstructured
	bound := requestTimeout
	if step.Verb == verbEvict {
		bound = evictionTimeout
	}
	err = retryRequest(ctx, bound, func(ctx context.Context) error {
		var err error
		answer, err = s.sendStepOnce(ctx, step, resource, resourceVersion)
		if err == nil {
			s.unsure = false
		} else if isTransient(err) {
			s.lost = true
			s.unsure = s.unsure || !isCertainlyNotDone(err)
		}
		return err
	})
	return answer, err
}

// sendStepOnce sends the request of a step.
func (s *stepSender) sendStepOnce(
	ctx context.Context,
	step v1alpha1.PlanStep,
	resource schema.GroupVersionResource,
	resourceVersion string,
) (*unstructured.Unstructured, error) {
	objects := s.client.resourceClient(resource, step.Namespace)
	var subresources []string
	if step.Subresource != "" {
		subresources = []string{step.Subresource}
	}
	switch step.Verb {
	case verbPatch:
		body, err := patchBodyWithPreconditions(step, resourceVersion)
		if err != nil {
			return nil, newHalt(CodeInvalid, "%s", err)
		}
		o := metav1.PatchOptions{DryRun: s.dryRunOption(), FieldManager: s.manager, Force: s.force}
		return objects.Patch(ctx, step.Name, types.PatchType(step.PatchType), body, o, subresources...)
	case verbCreate:
		object, err := decodeStepObject(step)
		if err != nil {
			return nil, err
		}
		return objects.Create(ctx, object, metav1.CreateOptions{DryRun: s.dryRunOption(), FieldManager: s.manager}, subresources...)
	case verbDelete:
		o, err := s.newDeleteOptions(step)
		if err != nil {
			return nil, err
		}
		return nil, objects.Delete(ctx, step.Name, o, subresources...)
	case verbEvict:
		return s.createEviction(ctx, step, resource)
	}
	return nil, newHalt(CodeInvalid, "%s: unsupported verb %s", step.Description, step.Verb)
}

// decodeStepObject returns the object that a step creates.
func decodeStepObject(step v1alpha1.PlanStep) (*unstructured.Unstructured, error) {
	var body map[string]any
	if err := utiljson.Unmarshal([]byte(step.Body), &body); err != nil || body == nil {
		return nil, newHalt(CodeInvalid, "%s: the body is not an object", step.Description)
	}
	return &unstructured.Unstructured{Object: body}, nil
}

// newDeleteOptions returns options that delete only the intended object.
func (s *stepSender) newDeleteOptions(step v1alpha1.PlanStep) (metav1.DeleteOptions, error) {
	var o metav1.DeleteOptions
	if step.Body != "" {
		if err := json.Unmarshal([]byte(step.Body), &o); err != nil {
			return o, newHalt(CodeInvalid, "%s: the body is not valid delete options", step.Description)
		}
	}
	if step.UID != "" {
		o.Preconditions = &metav1.Preconditions{UID: &step.UID}
	}
	o.DryRun = s.dryRunOption()
	return o, nil
}

// createEviction requests an eviction, which a disruption budget can refuse.
func (s *stepSender) createEviction(
	ctx context.Context,
	step v1alpha1.PlanStep,
	pods schema.GroupVersionResource,
) (*unstructured.Unstructured, error) {
	o, err := s.newDeleteOptions(step)
	if err != nil {
		return nil, err
	}
	options, err := toJSONObject(o)
	if err != nil {
		return nil, newHalt(CodeInvalid, "%s: %s", step.Description, err)
	}
	eviction := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion":    "policy/v1",
		"kind":          "Eviction",
		"metadata":      map[string]any{"name": step.Name, "namespace": step.Namespace},
		"deleteOptions": options,
	}}
	_, err = s.client.resourceClient(pods, step.Namespace).Create(ctx, eviction, metav1.CreateOptions{DryRun: s.dryRunOption()}, "eviction")
	return nil, err
}

// dryRunOption returns the dry-run option of requests.
func (s *stepSender) dryRunOption() []string {
	if s.dry {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// toJSONObject returns a value as an object.
func toJSONObject(value any) (map[string]any, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var all map[string]any
	return all, utiljson.Unmarshal(raw, &all)
}

// getObjectWithRetry reads an object, and retries transient failures.
func (c Client) getObjectWithRetry(ctx context.Context, t v1alpha1.Target) (live *unstructured.Unstructured, err error) {
	err = retryRequest(ctx, requestTimeout, func(ctx context.Context) error {
		var err error
		live, err = c.getObjectOnce(ctx, t)
		return err
	})
	return live, err
}

// listObjectsWithRetry lists the objects of a resource, and retries transient failures. An empty
// namespace means all.
func (c Client) listObjectsWithRetry(
	ctx context.Context,
	resource schema.GroupVersionResource,
	namespace string,
	o metav1.ListOptions,
) (all *unstructured.UnstructuredList, err error) {
	err = retryRequest(ctx, requestTimeout, func(ctx context.Context) error {
		var err error
		all, err = c.resourceClient(resource, namespace).List(ctx, o)
		return err
	})
	return all, err
}

// retryRequest makes a request, limited by a timeout, and retries transient failures. Cancelling the
// attempt does not abort a running request, whose outcome would be unknown.
func retryRequest(ctx context.Context, timeout time.Duration, request func(ctx context.Context) error) error {
	policy := backoff.Policy{Initial: 200 * time.Millisecond, Max: 5 * time.Second}
	for try := 1; ; try++ {
		if err := haltIfContextEnded(ctx); err != nil {
			return err
		}
		err := requestIgnoringCancel(ctx, timeout, request)
		if err == nil || !isTransient(err) {
			return err
		}
		if over := haltIfContextEnded(ctx); over != nil {
			return over
		}
		if try == maxTries {
			return newHalt(CodeTransient, "tried %d times: %s", try, err)
		}
		delay := policy.Delay(try - 1)
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			delay = max(delay, min(time.Duration(seconds)*time.Second, policy.Max))
		}
		if err = sleepUnlessEnded(ctx, delay); err != nil {
			return err
		}
	}
}

// requestIgnoringCancel makes one request, limited by a timeout and the deadline of the attempt.
func requestIgnoringCancel(ctx context.Context, timeout time.Duration, request func(ctx context.Context) error) error {
	end := time.Now().Add(timeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	return request(ctx)
}

// sleepUnlessEnded waits for d unless the attempt ends.
func sleepUnlessEnded(ctx context.Context, d time.Duration) error {
	if err := backoff.Sleep(ctx, d); err != nil {
		return haltIfContextEnded(ctx)
	}
	return nil
}

// haltIfContextEnded stops a cancelled attempt between two requests.
func haltIfContextEnded(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	if errors.Is(context.Cause(ctx), errDeadline) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return newHalt(CodeDeadline, "%s", errDeadline)
	}
	return newHalt(CodeCancelled, "cancelled")
}

// isTransient reports whether an error may pass: the server is busy, broken or was not reached.
func isTransient(err error) bool {
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

// isCertainlyNotDone reports whether the server cannot have done what it was asked: it was not reached, or refused the
// request before it stored anything.
func isCertainlyNotDone(err error) bool {
	if network, ok := errors.AsType[*net.OpError](err); ok && network.Op == "dial" {
		return true
	}
	unreachableWebhook := apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
	return apierrors.IsTooManyRequests(err) || unreachableWebhook
}

// toHalt converts an API error to the error of the attempt.
func toHalt(doing string, err error) error {
	if h, ok := errors.AsType[*halt](err); ok {
		return newHalt(h.code, "%s: %s", doing, h.message)
	}
	code := CodeInvalid
	switch {
	case isDeniedByAdmission(err):
		code = CodeDenied
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		code = CodeForbidden
	case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsGone(err):
		code = CodeGuard
	case apierrors.IsConflict(err), isTransient(err):
		code = CodeTransient
	}
	return newHalt(code, "%s: %s", doing, err)
}

// isDeniedByAdmission reports whether a permitted and valid request was refused by a webhook, a
// policy, a quota or another plugin. Plugins may use any status code, so the message decides.
func isDeniedByAdmission(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	text := status.Status().Message
	byWebhook := strings.Contains(text, "admission webhook ") && strings.Contains(text, " denied the request")
	byPolicy := strings.Contains(text, "ValidatingAdmissionPolicy ") && strings.Contains(text, " denied request")
	// The authorizer's message names the user: User "x" cannot patch …
	byPlugin := apierrors.IsForbidden(err) && !strings.Contains(text, `" cannot `)
	return byWebhook || byPolicy || byPlugin
}
