package drain

import (
	"cmp"
	"context"
	"errors"
	"net/http"
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
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// retryPolicy returns the delays between the evictions of a rejected pod.
func retryPolicy() backoff.Policy { return backoff.Policy{Initial: time.Second, Max: 30 * time.Second} }

// A result is the result of a request to remove a pod. It is a metric label with a closed
// set of values.
type result string

const (
	accepted result = "accepted"
	gone     result = "not_found"      // before the request
	kept     result = "blocked_by_pdb" // by a disruption budget
	refused  result = "rejected"       // by the API server, for another reason
	failed   result = "failed"         // no response, or none about the pod
)

func allResults() []result { return []result{accepted, gone, kept, refused, failed} }

// A way is how a pod is removed. It is a metric label with a closed set of values.
type way string

const (
	evicted way = "evict"
	deleted way = "delete"       // ignores disruption budgets
	dropped way = "force_delete" // without a grace period
)

func allWays() []way { return []way{evicted, deleted, dropped} }

// An order is a request to remove a pod, and its result.
type order struct {
	pod *corev1.Pod
	how way
	err error
}

// An evictor sends the requests to remove pods, within the rate limit.
type evictor struct {
	cfg     Config
	client  kubernetes.Interface
	limiter *rate.Limiter
	metrics *metrics
}

// evictDue sends the due requests to remove pods, within the limits. It records when
// a rejected request is retried.
func (e *evictor) evictDue(ctx context.Context, st *v1alpha1.NodeFaultStatus, going []item, m memory, now time.Time) error {
	orders := e.nextEvictions(st.Drain, going, m, now)
	e.sendRequests(ctx, orders)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	budgets := map[string][]policyv1.PodDisruptionBudget{}
	for _, o := range orders {
		r := resultOf(o.err)
		e.metrics.pods.WithLabelValues(string(o.how), string(r)).Inc()
		t := m[o.pod.UID]
		switch r {
		case accepted:
			m[o.pod.UID] = try{accepted: now}
			if o.how != dropped {
				st.Drain.Evicted++
			}
		case gone:
			m[o.pod.UID] = try{accepted: now}
		case kept, refused, failed:
			wait := retryPolicy().Delay(t.refusals)
			if seconds, asks := apierrors.SuggestsClientDelay(o.err); asks {
				wait = max(wait, min(time.Duration(seconds)*time.Second, backoff.MaxRetryAfter))
			}
			m[o.pod.UID] = try{refusals: t.refusals + 1, next: now.Add(wait), blocker: e.findBlocker(ctx, o, r, budgets)}
		}
	}
	return nil
}

// nextEvictions returns the requests to send now, as far as the rate allows. Pods with
// the fewest rejections come first.
func (e *evictor) nextEvictions(s *v1alpha1.DrainStatus, going []item, m memory, now time.Time) []*order {
	var orders []*order
	for _, it := range going {
		if how, due := dueNow(s, it, m[it.pod.UID], now); due {
			orders = append(orders, &order{pod: it.pod, how: how})
		}
	}
	slices.SortStableFunc(orders, func(a, b *order) int { return cmp.Compare(m[a.pod.UID].refusals, m[b.pod.UID].refusals) })
	for i := range orders {
		if !e.limiter.AllowN(now, 1) {
			return orders[:i]
		}
	}
	return orders
}

// dueNow reports whether a pod must be removed now, and how.
func dueNow(s *v1alpha1.DrainStatus, it item, t try, now time.Time) (how way, due bool) {
	if now.Before(t.next) || !t.accepted.IsZero() && now.Before(t.accepted.Add(settling)) {
		return "", false
	}
	switch it.action {
	case awaitEnd:
		return dropped, it.rule.ForceDeleteAfter > 0 && !now.Before(it.pod.DeletionTimestamp.Add(it.rule.ForceDeleteAfter))
	case evictPod:
		if it.rule.DeleteAfter > 0 && !now.Before(s.StartedAt.Add(it.rule.DeleteAfter)) {
			return deleted, true
		}
		return evicted, true
	case leavePod, waitFor:
	}
	return "", false
}

// sendRequests sends requests concurrently, and returns when all are done.
func (e *evictor) sendRequests(ctx context.Context, orders []*order) {
	work := make(chan *order)
	var workers sync.WaitGroup
	for range min(e.cfg.MaxPodsInFlight, len(orders)) {
		workers.Go(func() {
			for o := range work {
				o.err = e.requestRemoval(ctx, o)
			}
		})
	}
	for _, o := range orders {
		work <- o
	}
	close(work)
	workers.Wait()
}

// requestRemoval sends one request. A precondition on the UID protects another pod of the same
// name, and the pod's own grace period applies. The client does not retry, because it
// would wait as long as the API server suggests.
func (e *evictor) requestRemoval(ctx context.Context, o *order) error {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	uid := o.pod.UID
	how := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if o.how == dropped {
		var none int64
		how.GracePeriodSeconds = &none
	}
	pods := e.client.CoreV1().RESTClient()
	if o.how != evicted {
		return pods.Delete().Namespace(o.pod.Namespace).Resource("pods").Name(o.pod.Name).Body(&how).MaxRetries(0).Do(ctx).Error()
	}
	eviction := &policyv1.Eviction{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.pod.Namespace, Name: o.pod.Name}, DeleteOptions: &how,
	}
	return pods.Post().Namespace(o.pod.Namespace).Resource("pods").Name(o.pod.Name).SubResource("eviction").Body(eviction).MaxRetries(0).Do(ctx).Error()
}

// resultOf classifies the error of a request.
func resultOf(err error) result {
	switch {
	case err == nil:
		return accepted
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the pod is gone, or another has its name
		return gone
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause), manyBudgets(err):
		return kept
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !apierrors.IsTooManyRequests(err) && !isTransient(err):
		return refused
	}
	return failed
}

// manyBudgets reports whether several disruption budgets cover a pod, which the eviction
// API does not support. Only the status code shows this.
func manyBudgets(err error) bool {
	s, is := errors.AsType[*apierrors.StatusError](err)
	return is && s.ErrStatus.Code == http.StatusInternalServerError && s.ErrStatus.Reason == ""
}

// isTransient reports whether an error concerns the API server rather than the pod.
func isTransient(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err)
}

// findBlocker returns what blocks the removal of a pod.
func (e *evictor) findBlocker(ctx context.Context, o *order, r result, budgets map[string][]policyv1.PodDisruptionBudget) v1alpha1.BlockedPod {
	b := v1alpha1.BlockedPod{Pod: nameOf(o.pod), Message: nodefault.TruncateText(apiMessage(o.err), maxBlocker)}
	switch {
	case r == kept:
		b.BlockedBy = e.blockingBudgetNames(ctx, o.pod, budgets)
	case apierrors.HasStatusCause(o.err, corev1.NamespaceTerminatingCause):
		b.BlockedBy = byNamespace
	case r == refused:
		b.BlockedBy = byRefusal
	default:
		b.BlockedBy = byAPIServer
	}
	return b
}
