package drain

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/kube/eviction"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// evictionRetryBackoff returns the delays between the evictions of a rejected pod.
func evictionRetryBackoff() backoff.Policy {
	return backoff.Policy{Initial: time.Second, Max: 30 * time.Second}
}

// A removalMethod is how a pod is removed. It is a metric label with a closed set of values.
type removalMethod string

const (
	evicted removalMethod = "evict"
	deleted removalMethod = "delete"       // ignores disruption budgets
	dropped removalMethod = "force_delete" // without a grace period
)

func allRemovalMethods() []removalMethod { return []removalMethod{evicted, deleted, dropped} }

// A removalRequest is a request to remove a pod.
type removalRequest struct {
	pod    *corev1.Pod
	method removalMethod
}

// An evictor sends the requests to remove pods, within the rate limit.
type evictor struct {
	cfg     Config
	client  kubernetes.Interface
	limiter *rate.Limiter
	metrics *metrics
}

// sendDueRemovals sends the due requests to remove pods, within the limits. It records when
// a rejected request is retried.
func (e *evictor) sendDueRemovals(
	ctx context.Context,
	status *v1alpha1.NodeFaultStatus,
	leaving []podPlan,
	requests podRequests,
	now time.Time,
) error {
	requested := e.takeDueRequestsWithinRate(status.Drain, leaving, requests, now)
	errs := e.sendRemovalsConcurrently(ctx, requested)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	pdbsByNamespace := map[string][]policyv1.PodDisruptionBudget{}
	for i, request := range requested {
		pod := request.pod
		result := eviction.Classify(errs[i])
		e.metrics.pods.WithLabelValues(string(request.method), string(result)).Inc()
		switch result {
		case eviction.Accepted:
			requests[pod.UID] = requestState{accepted: now}
			if request.method != dropped {
				status.Drain.Evicted++
			}
		case eviction.NotFound:
			requests[pod.UID] = requestState{accepted: now}
		case eviction.BlockedByBudget, eviction.Rejected, eviction.Failed:
			refusals := requests[pod.UID].refusals
			requests[pod.UID] = requestState{
				refusals: refusals + 1,
				next:     now.Add(retryDelay(errs[i], refusals)),
				blocker:  e.describeBlockedPod(ctx, pod, errs[i], result, pdbsByNamespace),
			}
		}
	}
	return nil
}

// retryDelay returns the delay before a rejected request is retried. The API server may ask for a
// longer one.
func retryDelay(rejection error, refusals int) time.Duration {
	delay := evictionRetryBackoff().Delay(refusals)
	if seconds, suggested := apierrors.SuggestsClientDelay(rejection); suggested {
		suggestion := min(time.Duration(seconds)*time.Second, backoff.MaxRetryAfter)
		delay = max(delay, suggestion)
	}
	return delay
}

// takeDueRequestsWithinRate returns the requests to send now, as far as the rate allows. Pods with
// the fewest rejections come first.
func (e *evictor) takeDueRequestsWithinRate(
	drain *v1alpha1.DrainStatus, leaving []podPlan, requests podRequests, now time.Time,
) []*removalRequest {
	var requested []*removalRequest
	for _, plan := range leaving {
		if method, due := dueRemovalMethod(drain, plan, requests[plan.pod.UID], now); due {
			requested = append(requested, &removalRequest{pod: plan.pod, method: method})
		}
	}
	slices.SortStableFunc(requested, func(a, b *removalRequest) int {
		return cmp.Compare(requests[a.pod.UID].refusals, requests[b.pod.UID].refusals)
	})
	for i := range requested {
		if !e.limiter.AllowN(now, 1) {
			return requested[:i]
		}
	}
	return requested
}

// dueRemovalMethod reports whether a pod must be removed now, and by which method.
func dueRemovalMethod(
	drain *v1alpha1.DrainStatus, plan podPlan, state requestState, now time.Time,
) (method removalMethod, due bool) {
	mustWait := now.Before(state.next)
	mayBeGone := !state.accepted.IsZero() && now.Before(state.accepted.Add(settling))
	if mustWait || mayBeGone {
		return "", false
	}
	switch plan.action {
	case awaitEnd:
		forceAt := plan.pod.DeletionTimestamp.Add(plan.rule.ForceDeleteAfter)
		return dropped, plan.rule.ForceDeleteAfter > 0 && !now.Before(forceAt)
	case evictPod:
		deleteAt := drain.StartedAt.Add(plan.rule.DeleteAfter)
		if plan.rule.DeleteAfter > 0 && !now.Before(deleteAt) {
			return deleted, true
		}
		return evicted, true
	case leavePod, waitFor:
		// The pod is not removed.
	}
	return "", false
}

// sendRemovalsConcurrently sends requests concurrently. When all are done, it returns the error of
// each request, in their order.
func (e *evictor) sendRemovalsConcurrently(ctx context.Context, requested []*removalRequest) []error {
	errs := make([]error, len(requested))
	next := make(chan int) // the index of the request to send
	var workers sync.WaitGroup
	for range min(e.cfg.MaxPodsInFlight, len(requested)) {
		workers.Go(func() {
			for i := range next {
				errs[i] = e.evictOrDeletePod(ctx, requested[i])
			}
		})
	}
	for i := range requested {
		next <- i
	}
	close(next)
	workers.Wait()
	return errs
}

// evictOrDeletePod sends one request. A precondition on the UID protects another pod of the same
// name, and the pod's own grace period applies. The client does not retry, because it
// would wait as long as the API server suggests.
func (e *evictor) evictOrDeletePod(ctx context.Context, request *removalRequest) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pod := request.pod
	uid := pod.UID
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if request.method == dropped {
		var noGracePeriod int64
		options.GracePeriodSeconds = &noGracePeriod
	}
	pods := e.client.CoreV1().RESTClient()
	if request.method != evicted {
		return pods.Delete().
			Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
			Body(&options).
			MaxRetries(0).
			Do(ctx).Error()
	}
	body := &policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &options,
	}
	return pods.Post().
		Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("eviction").
		Body(body).
		MaxRetries(0).
		Do(ctx).Error()
}

// describeBlockedPod returns what blocks the removal of a pod, whose request failed with an error.
func (e *evictor) describeBlockedPod(
	ctx context.Context,
	pod *corev1.Pod,
	removalErr error,
	result eviction.Result,
	pdbsByNamespace map[string][]policyv1.PodDisruptionBudget,
) v1alpha1.BlockedPod {
	blocked := v1alpha1.BlockedPod{
		Pod:     namespacedName(pod),
		Message: nodefault.TruncateText(eviction.BlockReason(removalErr), maxBlocker),
	}
	switch {
	case result == eviction.BlockedByBudget:
		blocked.BlockedBy = e.coveringPDBNames(ctx, pod, pdbsByNamespace)
	case eviction.IsNamespaceTerminating(removalErr):
		blocked.BlockedBy = byNamespace
	case result == eviction.Rejected:
		blocked.BlockedBy = byRefusal
	default:
		blocked.BlockedBy = byAPIServer
	}
	return blocked
}
