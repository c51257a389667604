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
	stormReport               = 100 // nodes per request
	tricklePool, trickleNodes = "trickle", 240
	trickleWarm, trickleCount = 4, 100 // at most half of the nodes are cordoned
)

// cordonBench measures how quickly and with how many writes nodes are cordoned. The nodes are
// reported over HTTP, with faults for which the default rules cordon and drain a node, and have no
// pods to evict.
//
// First one node fails each second. The bench measures the time from its report until a watch shows
// it cordoned, and counts the controller's writes in the audit log, including rejected ones, but
// without those that store reports and the progress of sinks. Then all nodes of a large pool are
// reported at once. The bench measures the time from the first report until half of them, as many
// as the budget allows, are seen cordoned. This includes storing all reports, delivering the change
// events, and denying the other half. A bare loop then makes the same writes without deciding anything, and the
// ratio is its duration over that of the controller.
func cordonBench() bench {
	const ratio, latency, perCordon = "nodefault.cordons_vs_bare", "nodefault.fault_to_cordon_p99_ms", "nodefault.api_writes_per_cordon"
	return bench{names: []string{ratio, latency, perCordon}, run: func(ctx context.Context, progress io.Writer) (lines []line, err error) {
		ctx, cancel := context.WithTimeout(ctx, cordonPatience)
		defer cancel()
		b, err := startFaultBed(ctx, progress, map[string]int{stormPool: stormNodes, tricklePool: trickleNodes, barePool: stormNodes})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.stopBed()) }()
		seen, err := b.watchCordons(ctx)
		if err != nil {
			return nil, err
		}
		p99, each, err := b.measureCordonsOneByOne(ctx, progress, seen)
		if err != nil {
			return nil, err
		}
		took, writes, err := b.measureStorm(ctx, progress, seen)
		if err != nil {
			return nil, err
		}
		if err := b.stopController(); err != nil {
			return nil, err
		}
		bare, err := b.measureBareCordons(ctx, writes, seen.firstOfPool(stormPool))
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(progress, "the same writes by a bare loop took %.1f s\n", bare.Seconds())
		return []line{
			{kind: "ratio", name: ratio, value: bare.Seconds() / took.Seconds(), op: ">=", want: 0.8},
			{kind: "value", name: latency, value: p99, unit: "ms", op: "<=", want: 100},
			{kind: "value", name: perCordon, value: each, unit: "writes", op: "<=", want: 2},
		}, nil
	}}
}

// measureCordonsOneByOne makes one node after the other fail. It returns the 99th percentile of the time
// until they were cordoned, in milliseconds, and the writes per node.
func (b *faultBed) measureCordonsOneByOne(
	ctx context.Context,
	progress io.Writer,
	seen *cordons,
) (p99Ms, writesPerCordon float64, err error) {
	names := nodeNames(tricklePool, trickleWarm+trickleCount)
	var took []time.Duration
	for i, name := range names {
		if i == trickleWarm {
			if _, err := b.collectWritesUntilQuiet(ctx); err != nil {
				return 0, 0, err
			}
			took = nil
		}
		began := time.Now()
		if err := b.postFaultReports(ctx, []string{name}); err != nil {
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
	all, err := b.collectWritesUntilQuiet(ctx)
	if err != nil {
		return 0, 0, err
	}
	counted := float64(countMatchingWrites(all, auditedWrite.isCordon)) / trickleCount
	slices.Sort(took)
	slow := took[len(took)*99/100-1]
	_, _ = fmt.Fprintf(progress, "%d nodes, one a second: cordoned within %s, half of them %s, the slowest %s; the writes of the controller, %.2f each for the cordon:\n%s",
		len(took), slow.Round(time.Millisecond), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), counted, formatWriteCountsByKind(all))
	const milliseconds = 1000
	return slow.Seconds() * milliseconds, counted, nil
}

// measureStorm makes all nodes of the large pool fail at once. It returns the time until half of them are cordoned,
// and the writes until then.
func (b *faultBed) measureStorm(
	ctx context.Context,
	progress io.Writer,
	seen *cordons,
) (took time.Duration, writes cordonWrites, err error) {
	stored := make(chan error, stormNodes)
	began, requests := time.Now(), 0
	for some := range slices.Chunk(nodeNames(stormPool, stormNodes), stormReport) {
		requests++
		go func() { stored <- b.postFaultReports(ctx, some) }()
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
		return 0, cordonWrites{}, err
	}
	took = last.Sub(began)
	all, err := b.trail.readNewWrites()
	if err != nil {
		return 0, cordonWrites{}, err
	}
	all = slices.DeleteFunc(all, func(w auditedWrite) bool { return w.Answered.After(last) })
	_, _ = fmt.Fprintf(
		progress,
		"%d nodes reported within %.1f s, %d cordoned after %.1f s; the writes until then:\n%s",
		stormNodes,
		reported.Seconds(),
		allowed,
		took.Seconds(),
		formatWriteCountsByKind(all),
	)
	return took, countCordonWrites(all), nil
}

// cordons holds the nodes that a watch has shown as cordoned, with the times.
type cordons struct {
	mu    sync.Mutex
	at    map[string]time.Time
	moved chan struct{} // closed and replaced after each change
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
				c.recordCordon(e)
			}
			// An API server may end a watch; the next watch starts with all objects.
			if again, err := b.nodes.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{}); err == nil {
				w = again
			}
		}
	}()
	b.onStop(func() error { cancel(); <-done; return nil })
	return c, nil
}

func (c *cordons) recordCordon(e watch.Event) {
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

// firstOfPool returns the node of a pool that was cordoned first.
func (c *cordons) firstOfPool(pool string) (name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for candidate, at := range c.at {
		if strings.HasPrefix(candidate, pool) && (name == "" || at.Before(c.at[name])) {
			name = candidate
		}
	}
	return name
}

// awaitCordons waits until the observed cordons are enough, and returns the time.
func (c *cordons) awaitCordons(
	ctx context.Context,
	b *faultBed,
	enough func(map[string]time.Time) (time.Time, bool),
) (at time.Time, err error) {
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

// The user agents of the controller's writes.
const (
	byIntake = "fieldManager=fleetloop-fault-"
	byOutbox = "fieldManager=fleetloop-node-fault-outbox"
)

// isCordon reports whether a write concerns neither a report nor the progress of sinks.
func (w auditedWrite) isCordon() bool {
	return !strings.Contains(w.RequestURI, byIntake) && !strings.Contains(w.RequestURI, byOutbox)
}

// formatWriteCountsByKind returns the number of writes by kind.
func formatWriteCountsByKind(writes []auditedWrite) string {
	counts := map[string]int{}
	for _, w := range writes {
		what := w.formatVerbAndResource()
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
