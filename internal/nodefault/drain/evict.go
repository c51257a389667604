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

// An removalRequest is a request to remove a pod, and its result.
type removalRequest struct {
	pod    *corev1.Pod
	method removalMethod
	err    error
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
func (e *evictor) sendDueRemovals(ctx context.Context, st *v1alpha1.NodeFaultStatus, leaving []podPlan, requests podRequests, now time.Time) error {
	requested := e.dueRequestsWithinRate(st.Drain, leaving, requests, now)
	e.sendRemovalsConcurrently(ctx, requested)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	budgets := map[string][]policyv1.PodDisruptionBudget{}
	for _, request := range requested {
		result := eviction.Classify(request.err)
		e.metrics.pods.WithLabelValues(string(request.method), string(result)).Inc()
		t := requests[request.pod.UID]
		switch result {
		case eviction.Accepted:
			requests[request.pod.UID] = requestState{accepted: now}
			if request.method != dropped {
				st.Drain.Evicted++
			}
		case eviction.NotFound:
			requests[request.pod.UID] = requestState{accepted: now}
		case eviction.BlockedByBudget, eviction.Rejected, eviction.Failed:
			wait := evictionRetryBackoff().Delay(t.refusals)
			if seconds, asks := apierrors.SuggestsClientDelay(request.err); asks {
				wait = max(wait, min(time.Duration(seconds)*time.Second, backoff.MaxRetryAfter))
			}
			requests[request.pod.UID] = requestState{refusals: t.refusals + 1, next: now.Add(wait), blocker: e.describeBlockedPod(ctx, request, result, budgets)}
		}
	}
	return nil
}

// dueRequestsWithinRate returns the requests to send now, as far as the rate allows. Pods with
// the fewest rejections come first.
func (e *evictor) dueRequestsWithinRate(drain *v1alpha1.DrainStatus, leaving []podPlan, requests podRequests, now time.Time) []*removalRequest {
	var requested []*removalRequest
	for _, plan := range leaving {
		if how, due := dueRemovalMethod(drain, plan, requests[plan.pod.UID], now); due {
			requested = append(requested, &removalRequest{pod: plan.pod, method: how})
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
func dueRemovalMethod(drain *v1alpha1.DrainStatus, plan podPlan, state requestState, now time.Time) (method removalMethod, due bool) {
	if now.Before(state.next) || !state.accepted.IsZero() && now.Before(state.accepted.Add(settling)) {
		return "", false
	}
	switch plan.action {
	case awaitEnd:
		return dropped, plan.rule.ForceDeleteAfter > 0 && !now.Before(plan.pod.DeletionTimestamp.Add(plan.rule.ForceDeleteAfter))
	case evictPod:
		if plan.rule.DeleteAfter > 0 && !now.Before(drain.StartedAt.Add(plan.rule.DeleteAfter)) {
			return deleted, true
		}
		return evicted, true
	case leavePod, waitFor:
	}
	return "", false
}

// sendRemovalsConcurrently sends requests concurrently, and returns when all are done.
func (e *evictor) sendRemovalsConcurrently(ctx context.Context, requested []*removalRequest) {
	work := make(chan *removalRequest)
	var workers sync.WaitGroup
	for range min(e.cfg.MaxPodsInFlight, len(requested)) {
		workers.Go(func() {
			for request := range work {
				request.err = e.evictOrDeletePod(ctx, request)
			}
		})
	}
	for _, request := range requested {
		work <- request
	}
	close(work)
	workers.Wait()
}

// evictOrDeletePod sends one request. A precondition on the UID protects another pod of the same
// name, and the pod's own grace period applies. The client does not retry, because it
// would wait as long as the API server suggests.
func (e *evictor) evictOrDeletePod(ctx context.Context, request *removalRequest) error {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	uid := request.pod.UID
	how := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if request.method == dropped {
		var none int64
		how.GracePeriodSeconds = &none
	}
	pods := e.client.CoreV1().RESTClient()
	if request.method != evicted {
		return pods.Delete().Namespace(request.pod.Namespace).Resource("pods").Name(request.pod.Name).Body(&how).MaxRetries(0).Do(ctx).Error()
	}
	body := &policyv1.Eviction{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta: metav1.ObjectMeta{Namespace: request.pod.Namespace, Name: request.pod.Name}, DeleteOptions: &how,
	}
	return pods.Post().Namespace(request.pod.Namespace).Resource("pods").Name(request.pod.Name).SubResource("eviction").Body(body).MaxRetries(0).Do(ctx).Error()
}

// describeBlockedPod returns what blocks the removal of a pod.
func (e *evictor) describeBlockedPod(ctx context.Context, request *removalRequest, result eviction.Result, pdbsByNamespace map[string][]policyv1.PodDisruptionBudget) v1alpha1.BlockedPod {
	b := v1alpha1.BlockedPod{Pod: namespacedName(request.pod), Message: nodefault.TruncateText(eviction.BlockReason(request.err), maxBlocker)}
	switch {
	case result == eviction.BlockedByBudget:
		b.BlockedBy = e.coveringPDBNames(ctx, request.pod, pdbsByNamespace)
	case eviction.IsNamespaceTerminating(request.err):
		b.BlockedBy = byNamespace
	case result == eviction.Rejected:
		b.BlockedBy = byRefusal
	default:
		b.BlockedBy = byAPIServer
	}
	return b
}
