package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

const (
	// The edits whose latency is measured come in an open loop.
	scaleEditRate  = 50 // per second
	scaleEditCount = 3000

	scaleRepeatTime = time.Minute
)

// An eventWatch keeps the arrival of the events of edited clusters.
type eventWatch struct {
	mu       sync.Mutex
	awaited  map[string]int64     // generation by cluster
	arrivals map[string]time.Time // by cluster, of the awaited generation
	acks     map[string]time.Time // by cluster
}

// startEventWatch subscribes to the events.
func (t *topology) startEventWatch(ctx context.Context) (*eventWatch, error) {
	b, err := t.openBroker()
	if err != nil {
		return nil, err
	}
	w := &eventWatch{awaited: map[string]int64{}, arrivals: map[string]time.Time{}, acks: map[string]time.Time{}}
	t.simulated.Go(func() { _ = b.Run(ctx) }) // ends only with ctx
	t.simulated.Go(func() {
		_ = b.Consume(ctx, recorderName, func(_ context.Context, e cloudevent.Event) error {
			w.recordArrival(history.ParseEvent(recorderName, e.ID, e.Time, e.Data), time.Now())
			return nil
		})
	})
	return w, nil
}

func (w *eventWatch) recordArrival(e *history.Event, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wanted, awaited := w.awaited[e.ClusterID]
	if _, arrived := w.arrivals[e.ClusterID]; awaited && !arrived && e.Generation >= wanted {
		w.arrivals[e.ClusterID] = at
	}
}

// recordEdit records the acknowledgement of an edit. The event of an edit can arrive before, because the edit is awaited
// from its start.
func (w *eventWatch) recordEdit(r v1.Resource, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acks[r.ID] = at
}

func (w *eventWatch) await(r v1.Resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awaited[r.ID] = r.Generation + 1
}

// latencies returns the time from acknowledgement to event of each edit, in ascending order, and the number of edits
// without an event.
func (w *eventWatch) latencies() (sorted []time.Duration, missing int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, acknowledged := range w.acks {
		arrived, ok := w.arrivals[id]
		if !ok {
			missing++
			continue
		}
		sorted = append(sorted, max(0, arrived.Sub(acknowledged)))
	}
	slices.Sort(sorted)
	return sorted, missing
}

// measureEditLatency edits clusters in an open loop, and waits until the events of all have arrived.
func (t *topology) measureEditLatency(ctx context.Context, watch *eventWatch) (scaleLatency, error) {
	client, err := t.newClient(tenantBlue)
	if err != nil {
		return scaleLatency{}, err
	}
	defer client.CloseIdle()
	chosen, err := chooseRandomClusters(ctx, client, scaleEditCount)
	if err != nil {
		return scaleLatency{}, err
	}
	var edits errgroup.Group
	began := time.Now()
	for i, r := range chosen {
		if !pauseFor(ctx, time.Until(began.Add(time.Duration(i)*time.Second/scaleEditRate))) {
			return scaleLatency{}, context.Cause(ctx)
		}
		watch.await(r)
		edits.Go(func() error {
			edited, err := client.Clusters().Patch(ctx, r.ID, v1.PatchRequest{Spec: json.RawMessage(`{"version": "1.34.2"}`)})
			if err != nil {
				return err
			}
			watch.recordEdit(edited, time.Now())
			return nil
		})
	}
	if err := edits.Wait(); err != nil {
		return scaleLatency{}, err
	}
	err = poll(ctx, startBound, func(context.Context) error {
		if _, missing := watch.latencies(); missing > 0 {
			return fmt.Errorf("%d edits have no event", missing)
		}
		return nil
	})
	if err != nil {
		return scaleLatency{}, err
	}
	return summarizeLatencies(watch), nil
}

func summarizeLatencies(watch *eventWatch) scaleLatency {
	sorted, _ := watch.latencies()
	if len(sorted) == 0 {
		return scaleLatency{}
	}
	at := func(share float64) time.Duration { return sorted[int(share*float64(len(sorted)-1))] }
	return scaleLatency{Count: len(sorted), P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: at(1)}
}

// chooseRandomClusters returns random clusters of the first pages of a list.
func chooseRandomClusters(ctx context.Context, client *fleetclient.Client, maxCount int) ([]v1.Resource, error) {
	var list []v1.Resource
	for r, err := range client.Clusters().List(ctx, fleetclient.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		if list = append(list, r); len(list) == 10*maxCount {
			break
		}
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] }) //nolint:gosec // not a secret
	return list[:min(maxCount, len(list))], nil
}

// setReadyBackoff sets after which time the sentinel repeats the event of a ready cluster.
func (t *topology) setReadyBackoff(ctx context.Context, backoff time.Duration) error {
	patch := fmt.Sprintf(`{"spec": {"backoffReady": %q}}`, backoff)
	_, err := t.kube.Kubectl(ctx, "--namespace", hostNamespace, "patch", "sentinelconfig", v1.CollectionClusters, "--type=merge", "--patch="+patch)
	return err
}

// measureRepeats makes all ready clusters due, which the sentinel publishes at its highest rate, and measures what the events
// and their reports cost.
func (t *topology) measureRepeats(ctx context.Context, report *scaleReport) error {
	if err := t.setReadyBackoff(ctx, scaleRepeatTime); err != nil {
		return err
	}
	if !pauseFor(ctx, scaleRepeatTime) { // until the rate is steady
		return context.Cause(ctx)
	}
	begin, err := t.readUsageOfAll()
	if err != nil {
		return err
	}
	began := time.Now()
	if !pauseFor(ctx, scaleRepeatTime) {
		return context.Cause(ctx)
	}
	if report.Repeats, err = t.readUsageSince(begin); err != nil {
		return err
	}
	report.RepeatedReports, err = t.countReportsSince(ctx, began)
	if err == nil && report.RepeatedReports == 0 {
		err = errors.New("the adapter sent no reports")
	}
	return err
}
