package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	cordonPatience = 15 * time.Minute

	stormPool, stormNodes     = "storm", 1500
	stormReport               = 100 // nodes in one request
	tricklePool, trickleNodes = "trickle", 240
	trickleWarm, trickleCount = 4, 100 // of half of them at most
)

// cordonBench measures how soon and how cheaply nodes are taken out of service.
// They are reported over HTTP, with faults for which the rules that are shipped
// have a node cordoned and drained, and nothing runs on them that would have to
// go.
//
// First one fails each second: it is measured from its report until a watch shows
// it cordoned, and counted, by the audit log, what the controller writes, whether
// or not it is refused, without what stores the reports and what says how far
// sinks are. Then all nodes of a large pool are reported at once, and it is
// measured from the first report until half of them, as many as its budget
// allows, are seen cordoned: with the storing of all reports, the delivery of the
// change events, and the denials of the other half.
func cordonBench() bench {
	const rate, latency, writes = "nodefault.cordons_per_second", "nodefault.fault_to_cordon_p99_ms", "nodefault.api_writes_per_cordon"
	return bench{names: []string{rate, latency, writes}, run: func(ctx context.Context, progress io.Writer) (lines []line, err error) {
		ctx, cancel := context.WithTimeout(ctx, cordonPatience)
		defer cancel()
		b, err := startFaults(ctx, progress, map[string]int{stormPool: stormNodes, tricklePool: trickleNodes})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.stopBed()) }()
		seen, err := b.watchCordons(ctx)
		if err != nil {
			return nil, err
		}
		p99, each, err := b.measureTrickle(ctx, progress, seen)
		if err != nil {
			return nil, err
		}
		perSecond, err := b.measureStorm(ctx, progress, seen)
		if err != nil {
			return nil, err
		}
		return []line{
			{kind: "value", name: rate, value: perSecond, unit: "cordons/s", op: ">=", want: 50},
			{kind: "value", name: latency, value: p99, unit: "ms", op: "<=", want: 100},
			{kind: "value", name: writes, value: each, unit: "writes", op: "<=", want: 2},
		}, nil
	}}
}

// measureTrickle has one node after the other fail. It gives how long it took until
// they were cordoned, all but one in a hundred, in milliseconds, and how many
// writes each was.
func (b *faultBed) measureTrickle(ctx context.Context, progress io.Writer, seen *cordons) (p99, each float64, err error) {
	names := nodesOf(tricklePool, trickleWarm+trickleCount)
	var took []time.Duration
	for i, name := range names {
		if i == trickleWarm {
			if _, err := b.ownWrites(ctx); err != nil {
				return 0, 0, err
			}
			took = nil
		}
		began := time.Now()
		if err := b.reportFaults(ctx, []string{name}); err != nil {
			return 0, 0, err
		}
		at, err := seen.awaitCordons(ctx, b, func(at map[string]time.Time) (time.Time, bool) { t, is := at[name]; return t, is })
		if err != nil {
			return 0, 0, err
		}
		took = append(took, at.Sub(began))
		if err := backoff.Sleep(ctx, time.Until(began.Add(time.Second))); err != nil {
			return 0, 0, err
		}
	}
	all, err := b.ownWrites(ctx)
	if err != nil {
		return 0, 0, err
	}
	counted := float64(countWrites(all, write.isCordon)) / trickleCount
	slices.Sort(took)
	slow := took[len(took)*99/100-1]
	_, _ = fmt.Fprintf(progress, "%d nodes, one a second: cordoned within %s, half of them %s, the slowest %s; the writes of the controller, %.2f each for the cordon:\n%s",
		len(took), slow.Round(time.Millisecond), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), counted, cordonTally(all))
	const milliseconds = 1000
	return slow.Seconds() * milliseconds, counted, nil
}

// measureStorm has all nodes of the large pool fail at once, and gives how many of them
// are cordoned in a second.
func (b *faultBed) measureStorm(ctx context.Context, progress io.Writer, seen *cordons) (float64, error) {
	stored := make(chan error, stormNodes)
	began, requests := time.Now(), 0
	for some := range slices.Chunk(nodesOf(stormPool, stormNodes), stormReport) {
		requests++
		go func() { stored <- b.reportFaults(ctx, some) }()
	}
	done := make(chan error, 1)
	var reported time.Duration
	go func() {
		var errs []error
		for range requests {
			errs = append(errs, <-stored)
		}
		reported = time.Since(began)
		done <- errors.Join(errs...)
	}()
	const allowed = stormNodes / 2
	last, err := seen.awaitCordons(ctx, b, func(at map[string]time.Time) (time.Time, bool) {
		var times []time.Time
		for name, t := range at {
			if strings.HasPrefix(name, stormPool) {
				times = append(times, t)
			}
		}
		if len(times) < allowed {
			return time.Time{}, false
		}
		slices.SortFunc(times, time.Time.Compare)
		return times[allowed-1], true
	})
	if err = errors.Join(err, <-done); err != nil {
		return 0, err
	}
	took := last.Sub(began)
	all, err := b.trail.nextWrites()
	if err != nil {
		return 0, err
	}
	_, _ = fmt.Fprintf(progress, "%d nodes reported within %.1f s, %d cordoned after %.1f s; the writes until then:\n%s", stormNodes, reported.Seconds(), allowed, took.Seconds(), cordonTally(all))
	return allowed / took.Seconds(), nil
}

// cordons are the nodes that a watch has shown cordoned, and when.
type cordons struct {
	mu    sync.Mutex
	at    map[string]time.Time
	moved chan struct{} // closed and replaced when something happens
}

// watchCordons watches until the bed stops.
func (b *faultBed) watchCordons(ctx context.Context) (*cordons, error) {
	c := &cordons{at: map[string]time.Time{}, moved: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	w, err := b.nodes.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		cancel()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for e := range w.ResultChan() {
				c.handleEvent(e)
			}
			// An API server may end a watch, and tells the next one all there is.
			if again, err := b.nodes.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{}); err == nil {
				w = again
			}
		}
	}()
	b.onStop(func() error { cancel(); <-done; return nil })
	return c, nil
}

func (c *cordons) handleEvent(e watch.Event) {
	now := time.Now()
	node, is := e.Object.(*corev1.Node)
	if !is || !node.Spec.Unschedulable {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.at[node.Name]; known {
		return
	}
	c.at[node.Name] = now
	close(c.moved)
	c.moved = make(chan struct{})
}

// awaitCordons waits until what was seen is enough, and gives when it was.
func (c *cordons) awaitCordons(ctx context.Context, b *faultBed, enough func(map[string]time.Time) (time.Time, bool)) (at time.Time, err error) {
	for {
		c.mu.Lock()
		at, done := enough(c.at)
		moved, n := c.moved, len(c.at)
		c.mu.Unlock()
		if done {
			return at, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return at, b.eventually(ctx, func(context.Context) error {
				return fmt.Errorf("%d nodes were seen cordoned: %w", n, context.Cause(ctx))
			})
		}
	}
}

// Who writes as the controller, by the name that it gives itself there.
const (
	byIntake = "fieldManager=fleetloop-fault-"
	byOutbox = "fieldManager=fleetloop-node-fault-outbox"
)

// isCordon says whether a write is neither of a report nor of how far sinks are.
func (w write) isCordon() bool {
	return !strings.Contains(w.RequestURI, byIntake) && !strings.Contains(w.RequestURI, byOutbox)
}

// cordonTally tells of writes by their kinds.
func cordonTally(writes []write) string {
	counts := map[string]int{}
	for _, w := range writes {
		what := w.writeKind()
		switch {
		case strings.Contains(w.RequestURI, byIntake):
			what += ", a report"
		case strings.Contains(w.RequestURI, byOutbox):
			what += ", a delivery"
		}
		counts[what]++
	}
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "  %4d %s\n", counts[what], what)
	}
	return b.String()
}
