package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// outageBackoff returns the backoff while a Kubernetes API does not answer. A reflector
// by default would wait up to a minute after its return.
func outageBackoff() backoff.Policy {
	return backoff.Policy{Initial: 500 * time.Millisecond, Max: 3 * time.Second}
}

// NewRetryingListWatcher returns a lister and watcher that retries until the API server answers, where
// lw would return an error. A refusal of the API server is an error at once. onRetry is
// called with each error that is retried; it may be nil.
func NewRetryingListWatcher(
	lw toolscache.ListerWatcher, log *slog.Logger, onRetry func(error),
) toolscache.ListerWatcher {
	if onRetry == nil {
		onRetry = func(error) {}
	}
	return &retryingListWatcher{
		inner:       toolscache.ToListerWatcherWithContext(lw),
		log:         log,
		onRetry:     onRetry,
		unsupported: watchlist.DoesClientNotSupportWatchListSemantics(lw),
	}
}

type retryingListWatcher struct {
	inner       toolscache.ListerWatcherWithContext
	log         *slog.Logger
	onRetry     func(error)
	unsupported bool        // the client does not support watch lists
	outage      atomic.Bool // an outage was logged and has not ended
}

// IsWatchListSemanticsUnSupported reports the property of the inner client.
func (r *retryingListWatcher) IsWatchListSemanticsUnSupported() bool { return r.unsupported }

// List lists with retries.
func (r *retryingListWatcher) List(o metav1.ListOptions) (runtime.Object, error) {
	return r.ListWithContext(context.Background(), o)
}

// Watch starts a watch with retries.
func (r *retryingListWatcher) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return r.WatchWithContext(context.Background(), o)
}

// ListWithContext lists with retries.
func (r *retryingListWatcher) ListWithContext(
	ctx context.Context, o metav1.ListOptions,
) (runtime.Object, error) {
	return retryUntilServerAnswers(ctx, r, func() (runtime.Object, error) {
		return r.inner.ListWithContext(ctx, o)
	})
}

// WatchWithContext starts a watch with retries.
func (r *retryingListWatcher) WatchWithContext(
	ctx context.Context, o metav1.ListOptions,
) (watch.Interface, error) {
	return retryUntilServerAnswers(ctx, r, func() (watch.Interface, error) {
		return r.inner.WatchWithContext(ctx, o)
	})
}

// retryUntilServerAnswers calls request until the API server answers.
func retryUntilServerAnswers[T any](
	ctx context.Context, lw *retryingListWatcher, request func() (T, error),
) (T, error) {
	for attempt := 0; ; attempt++ {
		answer, err := request()
		var refusal apierrors.APIStatus
		answered := err == nil || errors.As(err, &refusal)
		if answered || ctx.Err() != nil {
			if lw.outage.CompareAndSwap(true, false) && ctx.Err() == nil {
				lw.log.InfoContext(ctx, "connection to the Kubernetes API restored")
			}
			return answer, err
		}
		if lw.outage.CompareAndSwap(false, true) {
			lw.log.WarnContext(ctx, "connection to the Kubernetes API failed, retrying", "err", err)
		}
		lw.onRetry(err)
		if backoff.Sleep(ctx, outageBackoff().Delay(attempt)) != nil {
			return answer, err
		}
	}
}
