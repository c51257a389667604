package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// A fakeProbe takes a while, and fails or succeeds.
type fakeProbe struct {
	mu    sync.Mutex
	err   error
	count int
	told  []string
}

func (p *fakeProbe) probe(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	if err := backoff.Sleep(ctx, 100*time.Millisecond); err != nil {
		return err
	}
	return p.err
}

func (p *fakeProbe) changed(_ context.Context, reason error, after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, fmt.Sprint(reason, " ", after.Round(time.Second)))
}

func (p *fakeProbe) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// probes returns the number of probes since its last call.
func (p *fakeProbe) probes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.count
	p.count = 0
	return n
}

func newBreakerRig(t *testing.T) (p *fakeProbe, b *circuitBreaker) {
	t.Helper()
	p = &fakeProbe{}
	b = newCircuitBreaker(p.probe, p.changed)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.runProbesWhileOpen(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return p, b
}

// wantDown calls probeUnlessOpen concurrently.
func wantDown(t *testing.T, b *circuitBreaker, want bool) {
	t.Helper()
	answers := make(chan error, 20)
	for range cap(answers) {
		go func() {
			down, err := b.probeUnlessOpen(t.Context())
			if err == nil && down != want {
				err = fmt.Errorf("down: %t", down)
			}
			answers <- err
		}()
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := newBreakerRig(t)
		wantDown(t, b, false)
		if n := p.probes(); n != 1 || b.isOpen() {
			t.Errorf("%d probes for many who ask at the same time, open: %t", n, b.isOpen())
		}
		p.set(errDown)
		wantDown(t, b, true)
		if n := p.probes(); n != 1 || !b.isOpen() {
			t.Errorf("%d probes, open: %t", n, b.isOpen())
		}
		time.Sleep(10500 * time.Millisecond)
		wantDown(t, b, true)
		if n := p.probes(); n != 10 {
			t.Errorf("%d probes in ten seconds", n)
		}
		p.set(nil)
		time.Sleep(time.Second)
		if b.isOpen() || !b.currentOutageOrZero().Since.IsZero() {
			t.Error("it does not close")
		}
		p.probes()
		time.Sleep(time.Minute)
		if n := p.probes(); n != 0 {
			t.Errorf("%d probes while nothing is wrong", n)
		}
		wantDown(t, b, false)
		if diff := cmp.Diff([]string{"connection refused 0s", "<nil> 11s"}, p.told); diff != "" {
			t.Error(diff)
		}
	})
}

func TestBreakerOpensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := newBreakerRig(t)
		for range 5 {
			p.set(errDown)
			wantDown(t, b, true)
			p.set(nil)
			time.Sleep(2 * time.Second)
			if b.isOpen() {
				t.Fatal("it does not close")
			}
		}
	})
}

// TestBreakerOfOneWhoIsStopped covers a caller that is stopped during its probe: the
// callers that waited with it probe again.
func TestBreakerOfOneWhoIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := newBreakerRig(t)
		p.set(errDown)
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { _, err := b.probeUnlessOpen(ctx); stopped <- err }()
		synctest.Wait()
		other := make(chan bool, 1)
		go func() { down, _ := b.probeUnlessOpen(t.Context()); other <- down }()
		synctest.Wait()
		stop()
		if err := <-stopped; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if b.isOpen() {
			t.Error("open because somebody was stopped")
		}
		if !<-other {
			t.Error("an outage was not found out")
		}
	})
}
