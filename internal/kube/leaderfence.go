package kube

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var errLeadershipExpired = errors.New(
	"this replica did not renew its leader election Lease in time, so another one may lead: it writes nothing",
)

// A leaderFence refuses the writes of a leader that did not renew its Lease in time. After a
// freeze of the process, such as a paused machine, the goroutines of the leader go on before it
// learns that another replica has taken over, and would write based on what they read before.
//
// The check and the write are not atomic. A process that is frozen between them still sends the write.
type leaderFence struct {
	// validFor is how long after a renewal the leader may write. It is the renew deadline, after
	// which the leader ends. It is shorter than the Lease, so that a request on its way has time
	// to arrive.
	validFor time.Duration

	mu       sync.Mutex
	renewed  time.Time // start of the last successful renewal; zero before the first
	released bool      // the Lease was released
}

// checkLeadership returns why this replica must not write. A replica that never led may write, as
// some parts run in all replicas.
func (f *leaderFence) checkLeadership() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	renewedTooLongAgo := !f.renewed.IsZero() && time.Since(f.renewed) >= f.validFor
	if f.released || renewedTooLongAgo {
		return errLeadershipExpired
	}
	return nil
}

// recordRenewal records that the Lease was renewed, or released if it is no longer held.
func (f *leaderFence) recordRenewal(start time.Time, held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed, f.released = start, !held
}

// newFencedConfig returns a copy of a config whose clients refuse to write if the leadership has
// expired.
func (f *leaderFence) newFencedConfig(cfg *rest.Config) *rest.Config {
	fenced := rest.CopyConfig(cfg)
	fenced.Wrap(func(rt http.RoundTripper) http.RoundTripper { return writeFencedTransport{rt, f} })
	return fenced
}

// A writeFencedTransport sends reads, and the writes that the fence allows.
type writeFencedTransport struct {
	base  http.RoundTripper
	fence *leaderFence
}

// RoundTrip implements http.RoundTripper.
func (t writeFencedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	isRead := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	if isRead {
		return t.base.RoundTrip(r)
	}
	if err := t.fence.checkLeadership(); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as RoundTrip must
		}
		return nil, err
	}
	return t.base.RoundTrip(r)
}

// WrappedRoundTripper returns the transport below, so that client-go can close its idle connections.
func (t writeFencedTransport) WrappedRoundTripper() http.RoundTripper { return t.base }

// A fencedLock tells a fence when its Lease is renewed and released.
type fencedLock struct {
	resourcelock.Interface

	fence *leaderFence
}

// Create implements resourcelock.Interface.
func (l fencedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	start := time.Now()
	if err := l.Interface.Create(ctx, record); err != nil {
		return err
	}
	l.fence.recordRenewal(start, record.HolderIdentity == l.Identity())
	return nil
}

// Update implements resourcelock.Interface.
func (l fencedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	start := time.Now()
	if err := l.Interface.Update(ctx, record); err != nil {
		return err
	}
	l.fence.recordRenewal(start, record.HolderIdentity == l.Identity())
	return nil
}
