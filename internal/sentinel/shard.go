package sentinel

import (
	"context"
	"errors"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// A Shard says which resources are ours, where several sentinels divide a
// fleet among themselves. Its methods are called by many goroutines at a time.
//
// What is not ours is neither decided nor kept nor counted. When what is ours
// changes, everything is listed anew at once: what was gained is found by
// that, and what was lost is dropped by it, or when it is next met.
type Shard interface {
	// Owns reports whether the resource with an id is ours just now. It is
	// asked for each resource that is read, and must not keep the id.
	Owns(id []byte) bool

	// Acquire is called before each attempt to publish, and release when that
	// is over: until then nobody else may publish about the resource. It is
	// not ok if the resource is not ours any more.
	Acquire(id []byte) (release func(), ok bool)

	// Changed is closed when what is ours is another than it was when Changed
	// was called. Ask again for the next time.
	Changed() <-chan struct{}
}

// noSharding is the shard of a sentinel that has all resources to itself.
type noSharding struct{}

// Owns is always true.
func (noSharding) Owns([]byte) bool { return true }

// Acquire is always ok.
func (noSharding) Acquire([]byte) (release func(), ok bool) { return func() {}, true }

// Changed never is.
func (noSharding) Changed() <-chan struct{} { return nil }

var (
	// errDivided cuts a list short: others of its resources are ours now than
	// when it was begun.
	errShardChanged = errors.New("the shard assignment changed")

	// errNotOurs is why an event is dropped.
	errNotOurs = errors.New("the resource now belongs to another replica")
)

// withCancelOnClose is a context that also ends, with errDivided, when a channel is
// closed. A nil channel never is. The function frees what that takes.
func withCancelOnClose(ctx context.Context, changed <-chan struct{}) (context.Context, func()) {
	if changed == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
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

// A shardEpoch tells a loop that lists everything when the resources are divided
// anew. One list is cut short for that; the next one is not, and is followed by
// another at once if need be: or a division that changes all the time would
// never let a long list come to its end.
type shardEpoch struct {
	shard         Shard
	changed       <-chan struct{} // since the list began
	uninterrupted bool            // it is not to be cut short
}

// beginList is called before a list is begun. The channel is closed when that is to be
// cut short, nil if it is not to be.
func (d *shardEpoch) beginList() (cut <-chan struct{}) {
	d.changed = d.shard.Changed() // a change from here on is too late for the list
	if d.uninterrupted {
		d.uninterrupted = false
		return nil
	}
	return d.changed
}

// noteInterrupted notes that the list was cut short.
func (d *shardEpoch) noteInterrupted() { d.uninterrupted = true }

// isStale reports whether the list that was begun holds no longer.
func (d *shardEpoch) isStale() bool {
	select {
	case <-d.changed:
		return true
	default:
		return false
	}
}

// sleepUntilChange waits, but not when the resources have been divided anew.
func (d *shardEpoch) sleepUntilChange(ctx context.Context, wait time.Duration) {
	ctx, stop := withCancelOnClose(ctx, d.changed)
	defer stop()
	_ = backoff.Sleep(ctx, wait) // it ends early, as whoever waits does
}
