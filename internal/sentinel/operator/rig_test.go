package operator_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/processtest"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/settings"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

// The addresses that the tests use.
const (
	fleetB = "http://fleet-b"
)

// An instanceRig is an instance with fake dependencies.
type instanceRig struct {
	*operator.Instance
	fleet   *Fleet
	brokers *Brokers
	metrics *prometheus.Registry
	groups  []*fakeGroup
	panics  atomic.Bool // whoever is told of an event
	log     processtest.Buffer
	cancel  context.CancelFunc
	done    chan struct{}
}

// newInstanceRig creates an instance and runs it, in a bubble.
func newInstanceRig(t *testing.T, change func(*operator.InstanceDeps)) *instanceRig {
	t.Helper()
	r := &instanceRig{fleet: NewFleet("a", "b", "c"), brokers: NewBrokers(), metrics: prometheus.NewRegistry(), done: make(chan struct{})}
	log, err := telemetry.NewLogger(&r.log, telemetry.LogConfig{Level: "debug"})
	if err != nil {
		t.Fatal(err)
	}
	deps := operator.InstanceDeps{
		OpenAPI: r.fleet.Open, OpenBroker: r.brokers.Open, Log: log, Registerer: r.metrics,
		NewGroup: func() (operator.ReplicaGroup, error) {
			g := &fakeGroup{ends: make(chan error)}
			r.groups = append(r.groups, g)
			return g, nil
		},
		OnPublished: func(sentinel.Published) {
			if r.panics.Load() {
				panic("told of an event")
			}
		},
	}
	if change != nil {
		change(&deps)
	}
	r.Instance = operator.NewInstance(deps)
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() {
		defer close(r.done)
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		r.stop()
		if strings.Contains(r.log.String(), "canary") {
			t.Error("a password stands in the log")
		}
	})
	return r
}

// stop ends the instance and waits for that.
func (r *instanceRig) stop() {
	r.cancel()
	<-r.done
}

// newWantedConfig returns a configuration for the first fleet and broker.
func newWantedConfig(generation int64, change ...func(*sentinelconfig.Settings)) operator.WantedConfig {
	w := operator.WantedConfig{Generation: generation, Settings: sentinelconfig.Settings{
		Sentinel: sentinel.Config{
			ResourceType:   "clusters",
			PollInterval:   time.Second,
			HyperfleetAPI:  sentinel.API{Endpoint: fleetA},
			Decision:       sentinel.Decision{Profile: sentinel.ProfileGenerationThenAge},
			MaxAgeNotReady: time.Hour,
		},
		Broker: sentinelconfig.Broker{Type: v1alpha1.BrokerNATS, Topic: "events", URL: brokerA},
	}}
	for _, c := range change {
		c(&w.Settings)
	}
	return w
}

func onBroker(url string) func(*sentinelconfig.Settings) {
	return func(s *sentinelconfig.Settings) { s.Broker.URL = settings.Secret(url) }
}

func onFleet(endpoint string) func(*sentinelconfig.Settings) {
	return func(s *sentinelconfig.Settings) { s.Sentinel.HyperfleetAPI.Endpoint = endpoint }
}

// pass lets time pass, and waits until all goroutines are idle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wantEvents checks how many events about generation n of each of the three clusters each broker
// has, and that ids are unique.
func (r *instanceRig) wantEvents(t *testing.T, want map[string]int) {
	t.Helper()
	got, ids := map[string]int{}, map[string]bool{}
	for _, e := range r.brokers.Events() {
		got[e.URL]++
		if ids[e.ID] {
			t.Errorf("event %s comes twice", e.ID)
		}
		ids[e.ID] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events by broker (-want +got):\n%s", diff)
	}
}

// wantState checks what runs and why.
func (r *instanceRig) wantState(t *testing.T, inForce int64, refusal operator.RefusalReason, failure string) operator.InstanceState {
	t.Helper()
	s := r.CurrentState()
	var reason operator.RefusalReason
	if s.Refusal != nil {
		reason = s.Refusal.Reason
	}
	if s.InForce != inForce || reason != refusal {
		t.Errorf("in force %d, refused %q; want %d and %q", s.InForce, reason, inForce, refusal)
	}
	if text := fmt.Sprint(s.Failure); failure == "" && s.Failure != nil || !strings.Contains(text, failure) && failure != "" {
		t.Errorf("failure is %v, want %q", s.Failure, failure)
	}
	return s
}

// metric returns the sum of the series of a metric.
func (r *instanceRig) metric(t *testing.T, name string) (sum float64, series int) {
	t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "hyperfleet_sentinel_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			series++
		}
	}
	return sum, series
}
