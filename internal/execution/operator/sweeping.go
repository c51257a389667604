package operator

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	// sweepInterval is how often the audit is searched for deleted executions. Nearly all deletions
	// are observed; the search finds those that happened while no controller ran.
	sweepInterval = time.Hour
	// sweepRetryDelay is the first delay after a failed search. It doubles up to
	// maxSweepRetryDelay, so that a search that is too slow does not overload the database.
	sweepRetryDelay    = 15 * time.Second
	maxSweepRetryDelay = 10 * time.Minute
)

// lostCloser closes executions in the audit whose end was missed.
type lostCloser interface {
	// RecordMissedDeletions records the end of executions in a namespace that are open in the audit and do not
	// exist. It returns their number.
	RecordMissedDeletions(ctx context.Context, namespace string, exists func(context.Context, types.NamespacedName, types.UID) (bool, error)) (recorded int, err error)
}

// sweeper searches the audit for executions that were deleted while no controller ran. Only the
// leading replica runs it, because the other replicas observe the same deletions.
type sweeper struct {
	namespace  string
	closer     lostCloser
	executions executions
	live       liveExecutions
	deleted    *deletedCache
	log        *slog.Logger
}

// liveExecutions reads executions from the host cluster without a cache.
type liveExecutions interface {
	// UID returns the UID of the execution of a name; empty means none.
	UID(ctx context.Context, name types.NamespacedName) (types.UID, error)
}

// Start searches periodically until ctx ends.
func (s *sweeper) Start(ctx context.Context) error {
	failing, again := false, sweepRetryDelay
	for wait := time.Duration(0); backoff.Sleep(ctx, wait) == nil; {
		closed, err := s.closer.RecordMissedDeletions(ctx, s.namespace, s.existsOrDeletionSeen)
		wait = sweepInterval
		if closed > 0 {
			s.log.InfoContext(ctx, "executions deleted while the controller was down, audit records added", "count", closed)
		}
		if err == nil || ctx.Err() != nil {
			failing, again = false, sweepRetryDelay
			continue
		}
		wait, again = again, min(2*again, maxSweepRetryDelay)
		if !failing {
			s.log.WarnContext(ctx, "search for deleted executions in the audit failed, retrying", "err", err)
		}
		failing = true
	}
	return nil
}

// existsOrDeletionSeen reports whether an execution exists, or its deletion was observed. The order
// matters: an execution in the cache that is deleted later is observed, and one that was observed
// before is in the deletedCache.
func (s *sweeper) existsOrDeletionSeen(ctx context.Context, name types.NamespacedName, uid types.UID) (bool, error) {
	ke, err := s.executions.Get(ctx, name)
	if apierrors.IsConflict(err) {
		return true, nil // it was just written; if that was another execution of the name, the next search finds this one
	}
	if err != nil {
		return false, err
	}
	if ke != nil && ke.UID == uid {
		return true, nil
	}
	live, err := s.live.UID(ctx, name)
	if err != nil {
		return false, err
	}
	return live == uid || s.deleted.hasExecution(name, uid), nil
}

// hostLive implements liveExecutions for a host cluster.
type hostLive struct{ reader client.Reader }

// UID reads only the metadata of an execution.
func (h hostLive) UID(ctx context.Context, name types.NamespacedName) (types.UID, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	var ke metav1.PartialObjectMetadata
	ke.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	err := h.reader.Get(ctx, name, &ke)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read execution %s: %w", name, err)
	}
	return ke.UID, nil
}
