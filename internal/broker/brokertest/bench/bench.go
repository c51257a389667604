// Package bench measures broker adapters against the client library that they
// use, in one run and in turns, so that what else the machine does counts for
// both.
package bench

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

// What the adapters are measured with.
const (
	// Window is how many events are unconfirmed at most.
	Window = 256
	// Events is how many are published in one turn.
	Events = 10_000
	// Turns is how many pairs of turns there are; the median counts.
	Turns = 9
)

// A Result is one line of make bench.
type Result struct {
	Name  string
	Value float64
	Want  float64 // or more
	// Detail says how fast both sides were.
	Detail string
}

// String is the line.
func (r Result) String() string {
	return fmt.Sprintf("ratio %s %.2f want >= %g", r.Name, r.Value, r.Want)
}

// A Publisher is what is measured.
type Publisher interface {
	Publish(ctx context.Context, e *cloudevent.Event) error
}

// Event gives the n-th event, as a sentinel would make it.
func Event(n int) *cloudevent.Event {
	return &cloudevent.Event{
		ID:      fmt.Sprintf("%032x", n),
		Source:  "hyperfleet-sentinel",
		Type:    "com.redhat.hyperfleet.cluster.reconcile",
		Subject: "0198f7a2-5b1c-7c3e-9a50-3f1a2b3c4d5e",
		Time:    time.Unix(1_761_048_000, 0).UTC(),
		Data:    []byte(`{"id":"0198f7a2-5b1c-7c3e-9a50-3f1a2b3c4d5e","kind":"Cluster","href":"/api/hyperfleet/v1/clusters/0198f7a2-5b1c-7c3e-9a50-3f1a2b3c4d5e","generation":7,"reason":"generation changed - new spec to reconcile"}`),
	}
}

// Bodies gives n encoded events, for those who only have to send them. Their
// ids begin at from.
func Bodies(from, n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = Event(from + i).AppendJSON(nil)
	}
	return out
}

// A Side is one way to publish: n events, with at most window unconfirmed. It
// returns when the last one is confirmed.
type Side func(ctx context.Context, n, window int) error

// Ours is the side of an adapter: as many callers as the window is wide, each
// of which makes an event, publishes it and waits.
func Ours(p Publisher) Side {
	var from atomic.Int64
	return func(ctx context.Context, n, window int) error {
		base := int(from.Add(int64(n))) - n
		var next atomic.Int64
		var work sync.WaitGroup
		errs := make([]error, window)
		for w := range window {
			work.Go(func() {
				for i := int(next.Add(1)) - 1; i < n && errs[w] == nil; i = int(next.Add(1)) - 1 {
					errs[w] = p.Publish(ctx, Event(base+i))
				}
			})
		}
		work.Wait()
		return errors.Join(errs...)
	}
}

// A Match is two sides and how they are compared.
type Match struct {
	Name         string
	Want         float64
	Ours, Theirs Side
	// Events is how many a turn has. Zero means the constant of that name.
	Events int
	// TheirEvents and TheirWindow are theirs, where they differ.
	TheirEvents, TheirWindow int
	// Between is called after each turn, to empty the broker. May be nil.
	Between func(ctx context.Context) error
}

// Run plays the match.
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

// measureRate is events per second.
func (m Match) measureRate(ctx context.Context, side Side, n, window int) (float64, error) {
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

// A Runner is a part that runs while it is measured.
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
		_ = r.Run(running) // what went wrong, Ready tells
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
