package shard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

// A replica is a member with a separate link to the store.
type replica struct {
	*shard.Group
	link    *link
	metrics *prometheus.Registry
	stop    func()
}

// A link is the connection of one replica to the store.
type link struct {
	store *memoryLeases

	mu    sync.Mutex
	fault func(ctx context.Context, request string) error
}

func (l *link) interrupt(fault func(ctx context.Context, request string) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = fault
}

func (l *link) check(ctx context.Context, request string) error {
	l.mu.Lock()
	fault := l.fault
	l.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(ctx, request)
}

func (l *link) Put(ctx context.Context, r shard.Record) (shard.Record, error) {
	if err := l.check(ctx, "put"); err != nil {
		return shard.Record{}, err
	}
	return l.store.Put(ctx, r)
}

func (l *link) Delete(ctx context.Context, r shard.Record) error {
	if err := l.check(ctx, "delete"); err != nil {
		return err
	}
	return l.store.Delete(ctx, r)
}

func (l *link) Watch(ctx context.Context, handle func(shard.LeaseChange)) error {
	if err := l.check(ctx, "watch"); err != nil {
		return err
	}
	return l.store.Watch(ctx, func(c shard.LeaseChange) {
		if l.check(ctx, "tell") == nil {
			handle(c)
		}
	})
}

// Faults of a link.
var errRefused = errors.New("connection refused")

func refuses(context.Context, string) error { return errRefused }

func hangs(ctx context.Context, _ string) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func newReplica(t *testing.T, store *memoryLeases, identity string) *replica {
	t.Helper()
	r := &replica{link: &link{store: store}, metrics: prometheus.NewRegistry()}
	g, err := shard.NewGroup(shard.GroupConfig{Name: "fleet", Identity: identity}, shard.Deps{Leases: r.link, Registerer: r.metrics})
	if err != nil {
		t.Fatalf("NewGroup() = %v", err)
	}
	r.Group = g
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func newReplicas(t *testing.T, store *memoryLeases, n int) (list []*replica) {
	t.Helper()
	for i := range n {
		list = append(list, newReplica(t, store, fmt.Sprint("pod-", i)))
	}
	synctest.Wait()
	return list
}

func ids() (list [][]byte) {
	for i := range 200 {
		list = append(list, fmt.Appendf(nil, "cluster-%d", i))
	}
	return list
}

// wantShared fails the test unless each id has one owner among replicas, and each of them owns some
// ids.
func wantShared(t *testing.T, replicas ...*replica) {
	t.Helper()
	synctest.Wait()
	shares := make([]int, len(replicas))
	for _, id := range ids() {
		owners := 0
		for i, r := range replicas {
			if r.Owns(id) {
				owners++
				shares[i]++
			}
		}
		if owners != 1 {
			t.Fatalf("%q has %d owners, want one", id, owners)
		}
	}
	for i, r := range replicas {
		if shares[i] == 0 {
			t.Errorf("replica %d of %d owns nothing", i, len(replicas))
		}
		if err := r.Ready(); err != nil {
			t.Errorf("Ready() = %v", err)
		}
	}
}

func wantNothing(t *testing.T, r *replica) {
	t.Helper()
	synctest.Wait()
	for _, id := range ids() {
		if _, ok := r.Acquire(id); ok || r.Owns(id) {
			t.Fatalf("%q is owned, want nothing to be", id)
		}
	}
	if r.Ready() == nil {
		t.Error("it owns nothing and is ready")
	}
}

// acquire returns an id that r owns and that other would own without r.
func acquire(t *testing.T, r *replica, id []byte) (release func()) {
	t.Helper()
	release, ok := r.Acquire(id)
	if !ok {
		t.Fatalf("Acquire(%q) is not ok", id)
	}
	return release
}

func changed(r *replica) func() bool {
	c := r.Changed()
	return func() bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
}
