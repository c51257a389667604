package sentinel

import (
	"context"
	"errors"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// A Shard says which resources belong to this sentinel when several sentinels share a fleet. Its
// methods are safe for concurrent use.
//
// Resources of other shards are not decided, stored or counted. After a change everything is listed
// at once: the list finds new resources of the shard, and drops the resources that it lost.
type Shard interface {
	// Owns reports whether the resource with an id belongs to this shard now. It is called for each
	// resource that is read, and must not keep the id.
	Owns(id []byte) bool

	// Acquire is called before each attempt to publish, and release after it. Until then no other
	// sentinel may publish about the resource. ok is false if the resource does not belong to this
	// shard.
	Acquire(id []byte) (release func(), ok bool)

	// Changed returns a channel that is closed at the next change of the shard's resources. Call it
	// again for the change after that.
	Changed() <-chan struct{}
}

// noSharding is the shard of a sentinel that owns all resources.
type noSharding struct{}

// Owns returns true.
func (noSharding) Owns([]byte) bool { return true }

// Acquire always succeeds.
func (noSharding) Acquire([]byte) (release func(), ok bool) { return func() {}, true }

// Changed returns nil: the resources of the shard never change.
func (noSharding) Changed() <-chan struct{} { return nil }

var (
	// errShardChanged interrupts a list because the resources of the shard have changed since it
	// began.
	errShardChanged = errors.New("the shard assignment changed")

	// errNotOurs is the reason why an event is dropped.
	errNotOurs = errors.New("the resource now belongs to another replica")
)

// withCancelOnShardChange returns a context that also ends when a channel is closed; its cause is then
// errShardChanged. A nil channel is never closed. The caller must call the returned function.
func withCancelOnShardChange(ctx context.Context, changed <-chan struct{}) (cancelled context.Context, release func()) {
	if changed == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{}) // closed when the goroutine has ended
	go func() {
		defer close(done)
		select {
		case <-changed:
			cancel(errShardChanged)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// A shardEpoch detects, for a loop that lists everything, that the shard's resources change. A
// change interrupts one list, but not the next one, which is followed by another list if there was
// a change. Otherwise a shard that changes all the time would never let a long list finish.
type shardEpoch struct {
	shard         Shard
	changed       <-chan struct{} // closed at the first change since the list began
	uninterrupted bool            // the list must not be interrupted
}

// beginList is called before a list. It returns a channel that is closed when the list must be
// interrupted, or nil if the list must not be interrupted.
func (e *shardEpoch) beginList() (interrupt <-chan struct{}) {
	e.changed = e.shard.Changed() // a change after this point is too late for the list
	if e.uninterrupted {
		e.uninterrupted = false
		return nil
	}
	return e.changed
}

// recordInterrupted records that the list was interrupted.
func (e *shardEpoch) recordInterrupted() { e.uninterrupted = true }

// hasShardChanged reports whether the shard changed since the list began.
func (e *shardEpoch) hasShardChanged() bool {
	select {
	case <-e.changed:
		return true
	default:
		return false
	}
}

// sleepOrUntilChange waits for a duration, or until the shard changes or ctx ends.
func (e *shardEpoch) sleepOrUntilChange(ctx context.Context, wait time.Duration) {
	ctx, stop := withCancelOnShardChange(ctx, e.changed)
	defer stop()
	_ = backoff.Sleep(ctx, wait) // returns early when the context ends
}
