package simulation_test

import (
	"context"
	"flag"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/simulation"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// storm is the number of resources in a storm. It is smaller with the race detector, which is slow;
// TestSimulationWithoutRaceDetector then plays a larger one.
// `go test ./devstack/simulation -run TestStorm -storm 1000000 -timeout 1h` is the largest supported
// storm.
var storm = flag.Int("storm", map[bool]int{false: 100_000, true: 5_000}[raceEnabled], "resources of a storm")

const (
	stormReady    = 30 * time.Minute
	stormNotReady = 5 * time.Minute
	stormPatched  = 200 // resources, while nobody looks

	// outage is when the outage begins, and back when it is over.
	outage = 5 * time.Minute
	back   = outage + time.Hour
	calmed = back + 25*time.Minute
)

// TestStorm: after an hour without the API, or without the broker, a large
// fleet is caught up on at no more than 1.5 times the rate that its ages call
// for in any case, in every ten seconds, and changed generations come first.
func TestStorm(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]simulation.Kind{"API": simulation.APIDown, "Broker": simulation.BrokerAway} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { blow(t, kind) })
		})
	}
}

func blow(t *testing.T, kind simulation.Kind) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), calmed)
	defer cancel()
	h := simulation.New()
	h.Quiet()
	begin := time.Now()
	schedule := &simulation.Schedule{Begin: begin, Faults: []simulation.Fault{{Kind: kind, From: outage, To: back, P: 1}}}
	dice := simulation.Dice(1)
	fleet := simulation.NewFleet(selector.Selector{}, nil)
	ids := simulation.UUIDs(dice.For("ids"), *storm)
	slices.Sort(ids)
	unready := 0
	fleet.Load(ids, func(i int, r *v1.Resource) {
		// In the steady state the last reports are spread over the age.
		age := stormReady
		if i%10 == 0 {
			age, r.Status.Phase = stormNotReady, v1.PhaseFailed
			unready++
		}
		r.Status.LastUpdatedTime = r.CreatedTime.Add(-simulation.Between(dice.For(i), 0, age))
		r.CreatedTime = r.CreatedTime.Add(-24 * time.Hour)
	})
	network := simulation.NewNetwork()
	server := simulation.NewServer(simulation.ServerConfig{
		Features: simulation.Features{Keyset: true, ETag: true, Cursor: true, Most: 500},
		Latency:  4 * time.Millisecond, Schedule: schedule, Dice: dice,
	}, fleet, h, network)
	var closed atomic.Bool
	broker := simulation.NewBroker(simulation.BrokerConfig{
		Latency: 4 * time.Millisecond, Schedule: schedule, Dice: dice,
		// Every adapter answers at once, and nothing gets better or worse.
		Deliver: func(e *simulation.Event) {
			time.AfterFunc(time.Second, func() {
				if !closed.Load() {
					fleet.Report(e.Resource, e.Generation, e.Phase == "Ready")
				}
			})
		},
	}, h)
	var parts sync.WaitGroup
	parts.Go(server.Serve)
	parts.Go(func() { server.RunFaults(ctx) })
	parts.Go(func() {
		if backoff.Sleep(ctx, back-time.Minute) == nil {
			for i := range stormPatched {
				fleet.Patch(ids[i*len(ids)/stormPatched], false)
			}
		}
	})
	run(ctx, t, network, broker)
	closed.Store(true)
	server.Close()
	_ = network.Close()
	parts.Wait()
	steady := float64(*storm-unready)/stormReady.Seconds() + float64(unready)/stormNotReady.Seconds()
	wantNoStorm(t, begin, h.Events(), steady)
}

// run runs a sentinel in cursor mode until ctx ends.
func run(ctx context.Context, t *testing.T, network *simulation.Network, broker *simulation.Broker) {
	t.Helper()
	transport := &http.Transport{DialContext: network.Dial, DisableCompression: true, MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	client, err := fleetclient.New(fleetclient.Config{
		Endpoint: "http://fleet.test", WrapTransport: func(http.RoundTripper) http.RoundTripper { return transport },
	})
	if err != nil {
		t.Fatal(err)
	}
	it, err := sentinel.New(sentinel.Config{
		ResourceType: "clusters", MaxAgeReady: stormReady, MaxAgeNotReady: stormNotReady,
		Source: sentinel.Sources{Mode: sentinel.ModeCursor},
		// The floor is for small fleets; this fleet must show a storm.
		Publish: sentinel.Publish{CatchUpFloor: 1},
		MessageData: settings.OrderedMap{
			{Key: "generation", Value: ".generation"},
			{Key: "reason", Value: "{{reason}}"},
			{Key: "phase", Value: ".status.phase"},
			{Key: "updated", Value: ".updated_time"},
			{Key: "reported", Value: ".status.last_updated_time"},
			{Key: "decided", Value: ".created_time"},
		},
	}, sentinel.Deps{API: client.Raw(), Publisher: broker.Connect(1), BrokerType: "nats"})
	if err != nil {
		t.Fatal(err)
	}
	if err := it.Run(ctx); err != nil {
		t.Error(err)
	}
}

// wantNoStorm counts the events per ten seconds.
func wantNoStorm(t *testing.T, begin time.Time, events []*simulation.Event, steady float64) {
	t.Helper()
	const window = 10 // seconds
	const first = int(back / time.Second / window)
	aged := map[int]int{}
	urgent, during := 0, 0
	var lastUrgent time.Duration
	for _, e := range events {
		at := e.At.Sub(begin)
		if at > outage+window*time.Second && at < back {
			during++
		}
		if e.Generation > 1 && at >= back && urgent < stormPatched {
			urgent, lastUrgent = urgent+1, at-back
			continue
		}
		aged[int(at/time.Second)/window]++
	}
	usual, before, after := steady*window, 0, 0
	for w, n := range aged {
		if w >= first {
			after = max(after, n)
		} else {
			before = max(before, n)
		}
		if float64(n) > math.Round(1.5*usual) { // of a rate that may be a third
			t.Errorf("%d events in the ten seconds from %ds, more than 1.5 × %.0f", n, w*window, usual)
		}
	}
	t.Logf("%d resources, steady %.1f/s: at most %.2f × that in ten seconds before the outage, %.2f × after it; %d changed generations within %s",
		*storm, steady, float64(before)/usual, float64(after)/usual, urgent, lastUrgent)
	if during > 0 {
		t.Errorf("%d events during the outage", during)
	}
	if urgent != stormPatched || lastUrgent > 20*time.Second {
		t.Errorf("%d of %d changed generations, the last %s after the outage", urgent, stormPatched, lastUrgent)
	}
	if float64(after) < usual {
		t.Errorf("at most %d events in ten seconds after the outage: nothing is caught up on", after)
	}
}
