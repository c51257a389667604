package main

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

const (
	million  = 1_000_000
	thousand = 1_000
)

// sentinelScaleBench measures the CPU time and memory of a sentinel for a million resources. One mode lists
// all of them in every round, another one requests changes.
func sentinelScaleBench() bench {
	const rssRatio, idle, rss = "sentinel.rss_1m_vs_10k", "sentinel.idle_round_1m_vs_full", "sentinel.rss_1m_mb"
	return bench{names: []string{rssRatio, idle, rss}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		few, err := measureSweeps(ctx, progress, sweeps{resources: 10 * thousand, interval: 100 * time.Millisecond, rounds: 300})
		if err != nil {
			return nil, err
		}
		many, err := measureSweeps(ctx, progress, sweeps{resources: million, interval: 5 * time.Second, rounds: 2})
		if err != nil {
			return nil, err
		}
		round, peak, err := measureCursor(ctx, progress, million)
		if err != nil {
			return nil, err
		}
		return []line{
			{kind: "ratio", name: rssRatio, value: float64(many.peak) / float64(few.peak), op: "<=", want: 1.2},
			{kind: "ratio", name: idle, value: float64(round) / float64(many.cpu), op: "<=", want: 0.001},
			{kind: "value", name: rss, value: float64(peak) / (1 << 20), unit: "MiB", op: "<=", want: 128},
		}, nil
	}}
}

// dueIndexMemoryBench measures the memory of an index in its worst case: the load of its tables depends on
// the number of resources.
func dueIndexMemoryBench() bench {
	const name = "sentinel.index_bytes_per_resource"
	return bench{names: []string{name}, run: func(context.Context, io.Writer) ([]line, error) {
		now := time.Now()
		x := state.NewDueIndex(now)
		worst := 0.0
		for n := 1; n <= million; n++ {
			x.PutNewest(fmt.Appendf(nil, "019a8e30-7c40-7b21-9d0e-%012x", n), now, state.ClassReady)
			if n > million/2 && n%thousand == 0 { // a table grows by a fifth, so its worst case is within that
				worst = max(worst, float64(x.EstimateMemoryBytes())/float64(n))
			}
		}
		return []line{{kind: "value", name: name, value: worst, unit: "bytes", op: "<=", want: 64}}, nil
	}}
}

// sweeps configures rounds of a sentinel that lists everything.
type sweeps struct {
	resources int
	interval  time.Duration
	rounds    int
}

type sweepsUsage struct {
	peak      int
	cpu, wall time.Duration // of one round, from its start to that of the next
}

// patience is the maximum duration of a measurement. A round of a million takes about twelve
// seconds, no measurement here more than a minute and a half.
const patience = 4 * time.Minute

// measureSweeps runs a sentinel for some rounds, after a warm-up round.
func measureSweeps(ctx context.Context, progress io.Writer, s sweeps) (sweepsUsage, error) {
	_, _ = fmt.Fprintf(progress, "listing %d resources %d times\n", s.resources, s.rounds+1)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b, err := startSentinelBed(ctx, s.resources, fmt.Sprintf("source: {mode: sweep}\npoll_interval: %s\n", s.interval))
	if err != nil {
		return sweepsUsage{}, err
	}
	defer b.closeBed()
	first, err := b.awaitAndMeasureUsage(ctx, func(c fleetCounts) bool { return c.Sweeps > 1 })
	begin := time.Now()
	if err != nil {
		return sweepsUsage{}, err
	}
	last, err := b.awaitAndMeasureUsage(ctx, func(c fleetCounts) bool { return c.Sweeps > 1+s.rounds })
	if err != nil {
		return sweepsUsage{}, err
	}
	rounds := time.Duration(s.rounds)
	took := sweepsUsage{peak: last.Peak, cpu: (last.CPU - first.CPU) / rounds, wall: time.Since(begin) / rounds}
	_, _ = fmt.Fprintf(progress, "%d resources: %s of CPU a round, a round in %s, peak %d KiB\n", s.resources, took.cpu, took.wall, took.peak>>10)
	return took, nil
}

// measureCursor lets a sentinel list everything once and then request changes, of which there are
// none. It returns the CPU time of such a round, and the peak memory after the second full list.
func measureCursor(ctx context.Context, progress io.Writer, resources int) (roundCPU time.Duration, peakBytes int, err error) {
	const rounds = 100
	_, _ = fmt.Fprintf(progress, "asking what changed of %d resources %d times\n", resources, rounds)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// The rounds are closer together than usual, to get more of them.
	b, err := startSentinelBed(ctx, resources, "source: {mode: cursor, full_sweep_interval: 75s}\npoll_interval: 250ms\n")
	if err != nil {
		return 0, 0, err
	}
	defer b.closeBed()
	if err := b.fleet.Await(ctx, func(c fleetCounts) bool { return c.Swept > 0 }); err != nil {
		return 0, 0, err
	}
	asked := b.fleet.Counts()
	from := asked.Polls + 10 // the last page has been decided by then
	before, err := b.awaitAndMeasureUsage(ctx, func(c fleetCounts) bool { return c.Polls >= from })
	if err != nil {
		return 0, 0, err
	}
	after, err := b.awaitAndMeasureUsage(ctx, func(c fleetCounts) bool { return c.Polls >= from+rounds })
	if err != nil {
		return 0, 0, err
	}
	if c := b.fleet.Counts(); c.Sweeps != asked.Sweeps || c.IDs != 0 {
		return 0, 0, fmt.Errorf("measure rounds without a change: there was something to do, %+v", c)
	}
	roundCPU = (after.CPU - before.CPU) / rounds
	_, _ = fmt.Fprintf(progress, "%s of CPU for a round without a change, peak so far %d KiB\n", roundCPU, after.Peak>>10)
	end, err := b.awaitAndMeasureUsage(ctx, func(c fleetCounts) bool { return c.Swept > 1 })
	return roundCPU, end.Peak, err
}

// A bed is a served fleet and a sentinel that watches it.
type bed struct {
	fleet *servedFleet
	web   *httptest.Server
	child *childProcess
}

func startSentinelBed(ctx context.Context, resources int, extraConfig string) (*bed, error) {
	b := &bed{fleet: newServedFleet(resources, time.Now())}
	b.web = httptest.NewServer(b.fleet)
	var err error
	b.child, err = startChild(ctx, newSentinelConfigText(b.web.URL)+extraConfig, childOptions{})
	if err != nil {
		b.web.Close()
	}
	return b, err
}

// newSentinelConfigText returns the start of a sentinel's configuration file.
func newSentinelConfigText(endpoint string) string {
	return fmt.Sprintf(`resource_type: clusters
hyperfleet_api: {endpoint: %q}
message_data: {resource_id: .id, resource_type: .kind, region: .metadata.labels.region}
`, endpoint)
}

// awaitAndMeasureUsage returns the sentinel's usage when the requests to the fleet satisfy done.
func (b *bed) awaitAndMeasureUsage(ctx context.Context, done func(fleetCounts) bool) (childUsage, error) {
	if err := b.fleet.Await(ctx, done); err != nil {
		return childUsage{}, err
	}
	return b.child.RequestUsage()
}

func (b *bed) closeBed() {
	_ = b.child.Stop() // the measurement reports errors
	b.web.Close()
}
