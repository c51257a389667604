package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	publishFleet = 40_000 // resources, all of which are due
	publishRuns  = 5      // pairs of runs; the median counts

	followed     = 100_000
	followRounds = 6
)

// sentinelListCPUBench compares the CPU time that a sentinel of the recommended size needs to list everything with
// that of a process that walks the tokens of the same pages.
func sentinelListCPUBench() bench {
	const name = "sentinel.cpu_100k_vs_walk"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		got, err := measureSweeps(ctx, progress, sweeps{resources: followed, interval: 5 * time.Second, rounds: followRounds})
		if err != nil {
			return nil, err
		}
		walk, err := measureBareWalk(ctx, followed, followRounds)
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(progress, "%s of CPU for a walk of the same pages\n", walk)
		return []line{{kind: "ratio", name: name, value: float64(got.cpu) / float64(walk), op: "<=", want: 1.5}}, nil
	}}
}

// measureBareWalk returns the CPU time of a walk, after a first one.
func measureBareWalk(ctx context.Context, resources, rounds int) (cpuPerRound time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	web := httptest.NewServer(newServedFleet(resources, time.Now()))
	defer web.Close()
	child, err := startThisProgram(ctx, []string{bareChildArgument, web.URL, "", ""}, childOptions{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, child.Stop()) }()
	first, err := child.RequestUsage()
	last := first
	for i := 0; i < rounds && err == nil; i++ {
		last, err = child.RequestUsage()
	}
	return (last.CPU - first.CPU) / time.Duration(rounds), err
}

// sentinelPublishBench compares a sentinel that publishes an event about each resource of a fleet with a bare process
// that reads the same pages, decodes what the events need and publishes them pipelined, to the same broker. One ratio is
// that of the events per second, the other one that of the CPU time per event.
func sentinelPublishBench() bench {
	const rate, cpu = "sentinel.publish_vs_ceiling", "sentinel.cpu_per_event_vs_bare"
	return bench{names: []string{rate, cpu}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		broker, err := startRabbitMQBed(ctx)
		if err != nil {
			return nil, err
		}
		defer broker.Close()
		var rates, cpus []float64
		for range publishRuns {
			bare, err := measureBarePublish(ctx, broker)
			if err != nil {
				return nil, err
			}
			ours, err := measureSentinelPublish(ctx, broker)
			if err != nil {
				return nil, err
			}
			_, _ = fmt.Fprintf(progress, "%d events: %.0f a second and %s of CPU each, by a bare process %.0f and %s\n",
				publishFleet, ours.perSecond(), ours.cpu, bare.perSecond(), bare.cpu)
			rates, cpus = append(rates, ours.perSecond()/bare.perSecond()), append(cpus, float64(ours.cpu)/float64(bare.cpu))
		}
		return []line{
			{kind: "ratio", name: rate, value: computeMedian(rates), op: ">=", want: 0.8},
			{kind: "ratio", name: cpu, value: computeMedian(cpus), op: "<=", want: 4},
		}, nil
	}}
}

// publishCost is what it takes to publish events about all resources.
type publishCost struct {
	took time.Duration
	cpu  time.Duration // per event
}

func (c publishCost) perSecond() float64 { return publishFleet / c.took.Seconds() }

// newDueFleet serves a fleet whose resources are all due.
func newDueFleet() *servedFleet { return newServedFleet(publishFleet, time.Now().Add(-time.Hour)) }

func measureBarePublish(ctx context.Context, broker *rabbitMQBed) (cost publishCost, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	web := httptest.NewServer(newDueFleet())
	defer web.Close()
	child, err := startThisProgram(ctx, []string{bareChildArgument, web.URL, broker.URL(), broker.Topic()}, childOptions{})
	if err != nil {
		return cost, err
	}
	defer func() { err = errors.Join(err, child.Stop(), broker.PurgeMessages(ctx)) }()
	began := time.Now()
	used, err := child.RequestUsage()
	if err == nil && used.Published != publishFleet {
		err = fmt.Errorf("the bare process published %d events, want %d", used.Published, publishFleet)
	}
	return publishCost{took: time.Since(began), cpu: used.CPU / publishFleet}, err
}

// measureSentinelPublish measures the first poll of a sentinel. Its rate limits are higher than what it can reach.
func measureSentinelPublish(ctx context.Context, broker *rabbitMQBed) (cost publishCost, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fleet := newDueFleet()
	web := httptest.NewServer(fleet)
	defer web.Close()
	config := newSentinelConfigText(web.URL) + "source: {mode: sweep}\npoll_interval: 1m\npublish: {catch_up_min_per_second: 1000000}\n"
	child, err := startChild(ctx, config, childOptions{Broker: broker.URL(), Topic: broker.Topic()})
	if err != nil {
		return cost, err
	}
	defer func() { err = errors.Join(err, child.Stop(), broker.PurgeMessages(ctx)) }()
	if err := fleet.Await(ctx, func(c fleetCounts) bool { return c.Sweeps > 0 }); err != nil {
		return cost, err
	}
	began := time.Now()
	const every = 5 * time.Millisecond
	for {
		used, err := child.RequestUsage()
		if err != nil || used.Published >= publishFleet {
			return publishCost{took: time.Since(began), cpu: used.CPU / publishFleet}, err
		}
		if err := backoff.Sleep(ctx, every); err != nil {
			return cost, fmt.Errorf("the sentinel published %d events, want %d: %w", used.Published, publishFleet, err)
		}
	}
}
