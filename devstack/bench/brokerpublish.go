package main

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
	// publishWindow is the maximum number of unconfirmed events.
	publishWindow = 256
	// publishEvents is the number of events in one turn.
	publishEvents = 10_000
	// publishTurns is the number of pairs of turns; the median counts.
	publishTurns = 9
)

// A publishResult is one line of make bench.
type publishResult struct {
	Name  string
	Value float64
	Want  float64 // minimum
	// Detail describes the rates of both sides.
	Detail string
}

// String returns the output line of the result.
func (r publishResult) String() string {
	return fmt.Sprintf("ratio %s %.2f want >= %g", r.Name, r.Value, r.Want)
}

// A brokerAdapter is the subject of a benchmark.
type brokerAdapter interface {
	Publish(ctx context.Context, e *cloudevent.Event) error
}

// newCloudEvent returns the n-th event, as a sentinel would build it.
func newCloudEvent(number int) *cloudevent.Event {
	return &cloudevent.Event{
		ID:      fmt.Sprintf("%032x", number),
		Source:  "hyperfleet-sentinel",
		Type:    "com.redhat.hyperfleet.cluster.reconcile",
		Subject: "0198f7a2-5b1c-7c3e-9a50-3f1a2b3c4d5e",
		Time:    time.Unix(1_761_048_000, 0).UTC(),
		Data: []byte(
			`{"id":"0198f7a2-5b1c-7c3e-9a50-3f1a2b3c4d5e","kind":"Cluster","href":"/api/hyperfleet/v1/clusters/0198f7a2-5b1c-7c3e-9a50-3f1a2b3c4d5e","generation":7,"reason":"generation changed - new spec to reconcile"}`,
		),
	}
}

// newPublishBodies returns count encoded events. Their ids begin at first.
func newPublishBodies(first, count int) [][]byte {
	out := make([][]byte, count)
	for i := range out {
		out[i] = newCloudEvent(first + i).AppendJSON(nil)
	}
	return out
}

// A publishFunc is one way to publish n events with at most window unconfirmed. It returns when the last
// one is confirmed.
type publishFunc func(ctx context.Context, n, window int) error

// newConcurrentPublishFunc returns the side of an adapter. It has window callers, each of which builds an event,
// publishes it and waits.
func newConcurrentPublishFunc(p brokerAdapter) publishFunc {
	var from atomic.Int64
	return func(ctx context.Context, n, window int) error {
		base := int(from.Add(int64(n))) - n
		var next atomic.Int64
		var work sync.WaitGroup
		errs := make([]error, window)
		for w := range window {
			work.Go(func() {
				for i := int(next.Add(1)) - 1; i < n && errs[w] == nil; i = int(next.Add(1)) - 1 {
					errs[w] = p.Publish(ctx, newCloudEvent(base+i))
				}
			})
		}
		work.Wait()
		return errors.Join(errs...)
	}
}

// A publishComparison compares two sides.
type publishComparison struct {
	Name         string
	Want         float64
	Ours, Theirs publishFunc
	// Events is the number of events in a turn. Zero means publishEvents.
	Events int
	// TheirEvents and TheirWindow apply to their side, if they differ.
	TheirEvents, TheirWindow int
	// Between is called after each turn, to empty the broker. May be nil.
	Between func(ctx context.Context) error
}

// Run runs the match and returns its result.
func (m publishComparison) Run(ctx context.Context) (publishResult, error) {
	events := cmp.Or(m.Events, publishEvents)
	theirEvents, theirWindow := cmp.Or(m.TheirEvents, events), cmp.Or(m.TheirWindow, publishWindow)
	var ratios, ours, theirs []float64
	for turn := -1; turn < publishTurns; turn++ { // the first warms up
		a, err := m.measureRateAndReset(ctx, m.Ours, events, publishWindow)
		if err != nil {
			return publishResult{}, fmt.Errorf("%s, ours: %w", m.Name, err)
		}
		b, err := m.measureRateAndReset(ctx, m.Theirs, theirEvents, theirWindow)
		if err != nil {
			return publishResult{}, fmt.Errorf("%s, theirs: %w", m.Name, err)
		}
		if turn >= 0 {
			ratios, ours, theirs = append(ratios, a/b), append(ours, a), append(theirs, b)
		}
	}
	slices.Sort(ratios)
	return publishResult{
		Name: m.Name, Want: m.Want, Value: computeMedian(ratios),
		Detail: fmt.Sprintf(
			"%.0f against %.0f events/s, ratios %.2f to %.2f in %d turns",
			computeMedian(ours),
			computeMedian(theirs),
			ratios[0],
			ratios[publishTurns-1],
			publishTurns,
		),
	}, nil
}

// measureRateAndReset returns events per second.
func (m publishComparison) measureRateAndReset(
	ctx context.Context,
	publish publishFunc,
	events, window int,
) (perSecond float64, err error) {
	begin := time.Now()
	if err := publish(ctx, events, window); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	if m.Between != nil {
		if err := m.Between(ctx); err != nil {
			return 0, err
		}
	}
	return float64(events) / took.Seconds(), nil
}

// A brokerRunner is a component that runs during a benchmark.
type brokerRunner interface {
	Run(ctx context.Context) error
	Ready() error
}

// startRunnerAndAwaitReady runs r until stop is called, and waits until it is ready.
func startRunnerAndAwaitReady(ctx context.Context, r brokerRunner) (stop func(), err error) {
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
