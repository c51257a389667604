package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/apiapp"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	watched     = 100_000
	changeEvery = 20 * time.Millisecond
	changes     = 1000
	warmUp      = 100 // changes for the warm-up, which do not count

	eventPatience = 10 * time.Second
)

// changeToCloudEventLatencyBench compares the delay from a change of a spec to the broker's confirmation of its
// event with that of a bare loop of commits, notifications and publishes. It uses the real fleet API on PostgreSQL,
// a sentinel that watches it, and RabbitMQ. It counts from the scheduled time of a change, even if earlier ones are
// not finished.
func changeToCloudEventLatencyBench() bench {
	const name = "sentinel.change_to_event_vs_bare"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		took, err := measureChangeToEventDelays(ctx, progress)
		if err != nil {
			return nil, err
		}
		return []line{{kind: "ratio", name: name, value: reportDelayRatio(progress, took), op: "<=", want: 2}}, nil
	}}
}

// delays holds the delays from the scheduled times of changes to their responses and to the
// confirmations of their events. bare holds the delays to the confirmations of a bare loop.
type delays struct{ answer, event, bare []time.Duration }

// reportDelays prints delays, and returns the 99th percentile.
func reportDelays(progress io.Writer, to string, took []time.Duration) (p99 time.Duration) {
	slices.Sort(took)
	p99 = took[len(took)*99/100]
	_, _ = fmt.Fprintf(progress, "%d changes, %d a second, to %s: median %s, 90th percentile %s, 99th %s, longest %s\n",
		len(took), time.Second/changeEvery, to, took[len(took)/2], took[len(took)*9/10], p99, took[len(took)-1])
	return p99
}

func measureChangeToEventDelays(ctx context.Context, progress io.Writer) (took delays, err error) {
	_, _ = fmt.Fprintf(progress, "loading %d rows\n", watched)
	dir, remove, err := tempDir()
	if err != nil {
		return took, err
	}
	defer remove()
	db, err := startMigratedDatabase(ctx, dir, true)
	if err != nil {
		return took, err
	}
	defer func() { err = errors.Join(err, db.stopServer()) }()
	url := db.server.DatabaseURL()
	fleet := databaseFleet{Rows: watched, Reported: time.Now()}
	if err := loadFleet(ctx, url, fleet); err != nil {
		return took, err
	}
	if err := markAllSynced(ctx, url); err != nil {
		return took, err
	}
	broker, err := startRabbitMQBed(ctx)
	if err != nil {
		return took, err
	}
	defer broker.Close()
	bare, err := measureBareDelays(ctx, url, broker, fleet)
	if err != nil {
		return took, err
	}
	took, err = measureSentinelDelays(ctx, progress, url, broker, fleet)
	took.bare = bare
	return took, err
}

// measureSentinelDelays changes specs by the fleet API, which a sentinel watches.
func measureSentinelDelays(
	ctx context.Context, progress io.Writer, databaseURL string, broker *rabbitMQBed, fleet databaseFleet,
) (took delays, err error) {
	client, stop, err := startAPI(ctx, databaseURL)
	if err != nil {
		return took, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	seen := confirmedEvents{at: map[string]time.Time{}}
	config := newSentinelConfigText(client.Endpoint()) + "source: {mode: watch}\n"
	watcher, err := startChild(ctx, config, childOptions{
		Broker: broker.URL(), Topic: broker.Topic(), OnEvent: seen.recordChangeConfirmTime,
	})
	if err != nil {
		return took, err
	}
	defer func() { err = errors.Join(err, watcher.Stop()) }()
	// The bare loop has changed the first resources.
	changing := changer{client: client, fleet: fleet, seen: &seen, next: warmUp + changes}
	if err := changing.changeUntilWatchDelivers(ctx); err != nil {
		return took, err
	}
	if err := watcher.awaitIdle(ctx); err != nil {
		return took, err
	}
	if err := awaitFleetCounted(ctx, databaseURL); err != nil {
		return took, err
	}
	if err := runVacuumAndCheckpoint(ctx, databaseURL); err != nil {
		return took, err
	}
	return changing.changeAndMeasureDelays(ctx, progress)
}

// startAPI runs the fleet API as its binary does, and waits until it responds.
func startAPI(ctx context.Context, databaseURL string) (client *fleetclient.Client, stop func() error, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, nil, err
	}
	env := map[string]string{
		"DATABASE_URL": databaseURL, "LISTEN_ADDRESS": addr,
		"METRICS_BIND_ADDRESS": "127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0",
	}
	command := apiapp.NewCommand(io.Discard, io.Discard, func(name string) (string, bool) { //nolint:contextcheck // it is given one below
		value, ok := env[name]
		return value, ok
	})
	command.SetArgs([]string{})
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- command.ExecuteContext(running) }()
	stop = func() error {
		cancel()
		return <-done
	}
	client, err = fleetclient.New(fleetclient.Config{Endpoint: "http://" + addr})
	if err == nil {
		err = backoff.Retry(
			ctx,
			backoff.Policy{Initial: 50 * time.Millisecond, Max: time.Second, MaxAttempts: 60},
			func(ctx context.Context) error {
				_, err := client.Raw().Get(ctx, v1.CollectionClusters, databaseFleet{}.ID(0).String())
				return err
			},
		)
	}
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return client, stop, nil
}

// confirmedEvents holds the resources with an event about their new generation.
type confirmedEvents struct {
	mu sync.Mutex
	at map[string]time.Time // time of the first such event
}

func (c *confirmedEvents) recordChangeConfirmTime(e childEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.at[e.ResourceID]; !ok && e.Generation > 1 {
		c.at[e.ResourceID] = e.At
	}
}

func (c *confirmedEvents) findConfirmTime(id string) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.at[id]
	return at, ok
}

// A changer changes specs.
type changer struct {
	client *fleetclient.Client
	fleet  databaseFleet
	seen   *confirmedEvents
	next   int // change
}

// resourceID returns the resource of change n: each change has a different one, spread over the
// whole list.
func (c *changer) resourceID(n int) string { return c.fleet.ID(n * 7919 % watched).String() }

func (c *changer) changeSpec(ctx context.Context, n int) error {
	_, err := c.client.Clusters().Patch(ctx, c.resourceID(n), v1.PatchRequest{Spec: newChangedSpec(n)})
	return err
}

func newChangedSpec(n int) json.RawMessage {
	return fmt.Appendf(nil, `{"provider":{"type":"aws","region":"eu-1"},"nodes":{"minimum":3,"maximum":%d}}`, 100+n)
}

// changeAndMeasureDelays changes specs on schedule and returns the delay of each to its event.
func (c *changer) changeAndMeasureDelays(ctx context.Context, progress io.Writer) (took delays, err error) {
	_, _ = fmt.Fprintf(progress, "changing %d specs, one every %s\n", warmUp+changes, changeEvery)
	first := c.next
	begin := time.Now().Add(changeEvery)
	errs := make([]error, warmUp+changes)
	answered := make([]time.Duration, len(errs))
	var sent sync.WaitGroup
	for i := range errs {
		at := begin.Add(time.Duration(i) * changeEvery)
		if err := backoff.Sleep(ctx, time.Until(at)); err != nil {
			return took, err
		}
		sent.Go(func() {
			errs[i] = c.changeSpec(ctx, first+i)
			answered[i] = time.Since(at)
		})
	}
	sent.Wait()
	if err := errors.Join(errs...); err != nil {
		return took, err
	}
	took.answer = answered[warmUp:]
	for i := warmUp; i < len(errs); i++ {
		at, err := c.pollForEvent(ctx, first+i, eventPatience)
		if err != nil {
			return took, err
		}
		took.event = append(took.event, at.Sub(begin.Add(time.Duration(i)*changeEvery)))
	}
	return took, nil
}

// changeUntilWatchDelivers changes successive resources until an event about one arrives without waiting for a
// round: the sentinel watches by then.
func (c *changer) changeUntilWatchDelivers(ctx context.Context) error {
	for {
		n, begin := c.next, time.Now()
		c.next++
		if err := c.changeSpec(ctx, n); err != nil {
			return err
		}
		at, err := c.pollForEvent(ctx, n, time.Minute)
		if err != nil || at.Sub(begin) < 100*time.Millisecond {
			return err
		}
	}
}

// pollForEvent waits for the event about a change.
func (c *changer) pollForEvent(ctx context.Context, n int, patience time.Duration) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no event about %s within %s", c.resourceID(n), patience))
	defer cancel()
	for {
		if at, ok := c.seen.findConfirmTime(c.resourceID(n)); ok {
			return at, nil
		}
		if err := backoff.Sleep(ctx, time.Millisecond); err != nil {
			return time.Time{}, context.Cause(ctx)
		}
	}
}
