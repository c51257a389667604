// Package brokerbench measures broker adapters against their client libraries. Both sides run alternately
// in one process, so that other load on the machine affects both.
package brokerbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// Parameters of the benchmarks.
const (
	// Window is the maximum number of unconfirmed events.
	Window = 256
	// Events is the number of events in one turn.
	Events = 10_000
	// Turns is the number of pairs of turns; the median counts.
	Turns = 9
)

// A Result is one line of make bench.
type Result struct {
	Name  string
	Value float64
	Want  float64 // minimum
	// Detail describes the rates of both sides.
	Detail string
}

// String returns the output line of the result.
func (r Result) String() string {
	return fmt.Sprintf("ratio %s %.2f want >= %g", r.Name, r.Value, r.Want)
}

// A Publisher is the subject of a benchmark.
type Publisher interface {
	Publish(ctx context.Context, e *cloudevent.Event) error
}

// NewEvent returns the n-th event, as a sentinel would build it.
func NewEvent(number int) *cloudevent.Event {
	return &cloudevent.Event{
		ID:      fmt.Sprintf("%032x", number),
		Source:  "hyperfleet-sentinel",
		Type:    "com.redhat.hyperfleet.cluster.reconcile",
		Subject: "0198f7a2-5b1c-7c3e-9a50-3f1a2b3c4d5e",
		Time:    time.Unix(1_761_048_000, 0).UTC(),
		Data:    []byte(`{"id":"0198f7a2-5b1c-7c3e-9a50-3f1a2b3c4d5e","kind":"Cluster","href":"/api/hyperfleet/v1/clusters/0198f7a2-5b1c-7c3e-9a50-3f1a2b3c4d5e","generation":7,"reason":"generation changed - new spec to reconcile"}`),
	}
}

// NewEventBodies returns count encoded events. Their ids begin at first.
func NewEventBodies(first, count int) [][]byte {
	out := make([][]byte, count)
	for i := range out {
		out[i] = NewEvent(first + i).AppendJSON(nil)
	}
	return out
}

// A Side is one way to publish n events with at most window unconfirmed. It returns when the last
// one is confirmed.
type Side func(ctx context.Context, n, window int) error

// PublisherSide returns the side of an adapter. It has window callers, each of which builds an event,
// publishes it and waits.
func PublisherSide(p Publisher) Side {
	var from atomic.Int64
	return func(ctx context.Context, n, window int) error {
		base := int(from.Add(int64(n))) - n
		var next atomic.Int64
		var work sync.WaitGroup
		errs := make([]error, window)
		for w := range window {
			work.Go(func() {
				for i := int(next.Add(1)) - 1; i < n && errs[w] == nil; i = int(next.Add(1)) - 1 {
					errs[w] = p.Publish(ctx, NewEvent(base+i))
				}
			})
		}
		work.Wait()
		return errors.Join(errs...)
	}
}

// A Match compares two sides.
type Match struct {
	Name         string
	Want         float64
	Ours, Theirs Side
	// Events is the number of events in a turn. Zero means the constant of that name.
	Events int
	// TheirEvents and TheirWindow apply to their side, if they differ.
	TheirEvents, TheirWindow int
	// Between is called after each turn, to empty the broker. May be nil.
	Between func(ctx context.Context) error
}

// Run runs the match and returns its result.
func (m Match) Run(ctx context.Context) (Result, error) {
	events := cmp.Or(m.Events, Events)
	theirEvents, theirWindow := cmp.Or(m.TheirEvents, events), cmp.Or(m.TheirWindow, Window)
	var ratios, ours, theirs []float64
	for turn := -1; turn < Turns; turn++ { // the first warms up
		a, err := m.measureRate(ctx, m.Ours, events, Window)
		if err != nil {
			return Result{}, fmt.Errorf("%s, ours: %w", m.Name, err)
		}
		b, err := m.measureRate(ctx, m.Theirs, theirEvents, theirWindow)
		if err != nil {
			return Result{}, fmt.Errorf("%s, theirs: %w", m.Name, err)
		}
		if turn >= 0 {
			ratios, ours, theirs = append(ratios, a/b), append(ours, a), append(theirs, b)
		}
	}
	slices.Sort(ratios)
	return Result{
		Name: m.Name, Want: m.Want, Value: medianOf(ratios),
		Detail: fmt.Sprintf("%.0f against %.0f events/s, ratios %.2f to %.2f in %d turns", medianOf(ours), medianOf(theirs), ratios[0], ratios[Turns-1], Turns),
	}, nil
}

// measureRate returns events per second.
func (m Match) measureRate(ctx context.Context, side Side, n, window int) (perSecond float64, err error) {
	begin := time.Now()
	if err := side(ctx, n, window); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	if m.Between != nil {
		if err := m.Between(ctx); err != nil {
			return 0, err
		}
	}
	return float64(n) / took.Seconds(), nil
}

func medianOf(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// A Runner is a component that runs during a benchmark.
type Runner interface {
	Run(ctx context.Context) error
	Ready() error
}

// Start runs r until stop is called, and waits until it is ready.
func Start(ctx context.Context, r Runner) (stop func(), err error) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(running) // Ready reports any failure
	}()
	stop = func() {
		cancel()
		<-done
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for r.Ready() != nil {
		select {
		case <-tick.C:
		case <-done:
			return nil, r.Ready()
		case <-ctx.Done():
			stop()
			return nil, errors.Join(context.Cause(ctx), r.Ready())
		}
	}
	return stop, nil
}
