package instance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator/instance"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator/operatortest"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/settings"
	"github.com/fleetloop/fleetloop/internal/telemetry"
	"github.com/fleetloop/fleetloop/internal/telemetry/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The addresses that the tests use.
const (
	fleetA  = "http://fleet-a"
	fleetB  = "http://fleet-b"
	brokerA = "nats://user:canary-a@broker-a"
	brokerB = "nats://user:canary-b@broker-b"
)

// A rig is an instance with everything around it faked.
type rig struct {
	*instance.Instance
	fleet   *operatortest.Fleet
	brokers *operatortest.Brokers
	metrics *prometheus.Registry
	groups  []*fakeGroup
	log     logtest.Buffer
	cancel  context.CancelFunc
	done    chan struct{}
}

// newRig makes an instance and runs it, in a bubble.
func newRig(t *testing.T, change func(*instance.Deps)) *rig {
	t.Helper()
	r := &rig{fleet: operatortest.NewFleet("a", "b", "c"), brokers: operatortest.NewBrokers(), metrics: prometheus.NewRegistry(), done: make(chan struct{})}
	log, err := telemetry.NewLogger(&r.log, telemetry.LogConfig{Level: "debug"})
	if err != nil {
		t.Fatal(err)
	}
	deps := instance.Deps{
		OpenAPI: r.fleet.Open, OpenBroker: r.brokers.Open, Log: log, Registerer: r.metrics,
		NewGroup: func() (instance.Group, error) {
			g := &fakeGroup{}
			r.groups = append(r.groups, g)
			return g, nil
		},
	}
	if change != nil {
		change(&deps)
	}
	r.Instance = instance.New(deps)
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
func (r *rig) stop() {
	r.cancel()
	<-r.done
}

// wanted is a configuration on the first fleet and broker.
func wanted(generation int64, change ...func(*sentinelconfig.Settings)) instance.Wanted {
	w := instance.Wanted{Generation: generation, Settings: sentinelconfig.Settings{
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

// pass lets time pass, and waits until everything that is to happen has.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wantEvents checks how many events about generation n of each of the three clusters
// each broker has, and that no id comes twice.
func (r *rig) wantEvents(t *testing.T, want map[string]int) {
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
func (r *rig) wantState(t *testing.T, inForce int64, refusal instance.Reason, failure string) instance.State {
	t.Helper()
	s := r.State()
	var reason instance.Reason
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

// metric is the sum of the series of a metric.
func (r *rig) metric(t *testing.T, name string) (sum float64, series int) {
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

func TestRunsWhatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		pass(time.Second)
		r.wantState(t, 0, "", "")
		if err := r.Ready(); err == nil {
			t.Error("ready without a configuration")
		}
		r.Apply(wanted(1))
		pass(2 * time.Second)
		s := r.wantState(t, 1, "", "")
		if s.Seen != 1 || s.Changes != 1 || s.Stats.Resources != 3 || s.Stats.Published != 3 || r.Ready() != nil || r.Live() != nil {
			t.Errorf("state is %+v, ready %v, live %v", s, r.Ready(), r.Live())
		}
		r.wantEvents(t, map[string]int{brokerA: 3})
		if watches, decisions, ok := r.Decisions(); !ok || watches != "clusters" || decisions.Len() != 3 {
			t.Errorf("decisions: %q, %t", watches, ok)
		}
		r.stop()
		r.fleet.Patch()
		pass(time.Minute)
		r.wantEvents(t, map[string]int{brokerA: 3})
		if _, series := r.metric(t, "events_published_total"); series != 0 || r.brokers.Running(brokerA) != 0 {
			t.Errorf("of an instance that has ended %d series and %d clients are left", series, r.brokers.Running(brokerA))
		}
	})
}

// TestChangesWhileItRuns holds that a change takes effect on the connections
// that are there, that nothing is repeated, and that counters go on.
func TestChangesWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.Apply(wanted(1))
		pass(2 * time.Second)
		before := r.fleet.Lists()
		r.Apply(wanted(2, func(s *sentinelconfig.Settings) { s.Sentinel.PollInterval = 100 * time.Millisecond }))
		pass(5 * time.Second)
		if n := r.fleet.Lists() - before; n < 45 {
			t.Errorf("%d lists in 5 s at a poll interval of 100 ms", n)
		}
		r.fleet.Patch("a")
		pass(time.Second)
		s := r.wantState(t, 2, "", "")
		if s.Changes != 2 || s.Stats.Published != 4 {
			t.Errorf("state is %+v, want 4 events under the second configuration", s)
		}
		r.wantEvents(t, map[string]int{brokerA: 4})
		if published, series := r.metric(t, "events_published_total"); published != 4 || series != 1 {
			t.Errorf("%v events counted in %d series, want 4 in 1", published, series)
		}
		if reloads, _ := r.metric(t, "config_reloads_total"); reloads != 1 {
			t.Errorf("%v reloads, want 1", reloads)
		}
		if diff := cmp.Diff([]string{fleetA}, r.fleet.Opened()); diff != "" {
			t.Errorf("clients of the API (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{brokerA}, r.brokers.Opened()); diff != "" {
			t.Errorf("clients of the broker (-want +got):\n%s", diff)
		}

		// What says the same in other words is only noted.
		r.Apply(wanted(3, func(s *sentinelconfig.Settings) { s.Sentinel.PollInterval = 100 * time.Millisecond }))
		pass(time.Second)
		if s := r.wantState(t, 3, "", ""); s.Changes != 2 {
			t.Errorf("%d changes, want 2: the last says what is in force", s.Changes)
		}
	})
}

// TestNewBrokerMustAnswer holds that the old broker is used until the new one
// answers, that confirms which are under way are awaited, and that each event
// is published once, to one of the two.
func TestNewBrokerMustAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.brokers.SetAway(brokerB, true)
		r.Apply(wanted(1))
		pass(2 * time.Second)
		r.Apply(wanted(2, onBroker(brokerB)))
		pass(10 * time.Second)
		s := r.wantState(t, 1, "", "")
		if s.Seen != 2 || s.Pending == nil || s.Pending.Generation != 2 || s.Pending.API != nil || !errors.Is(s.Pending.Broker, operatortest.ErrAway) {
			t.Errorf("state is %+v, want generation 2 to wait for its broker", s)
		}
		if text := fmt.Sprint(s.Pending.Broker); strings.Contains(text, "canary") {
			t.Errorf("a password is shown: %s", text)
		}
		release := r.brokers.Hold(brokerA)
		r.fleet.Patch()
		pass(2 * time.Second)
		if n := r.brokers.Waiting(brokerA); n != 3 {
			t.Fatalf("%d confirms are awaited, want 3 of the old broker", n)
		}
		r.brokers.SetAway(brokerB, false)
		pass(2 * time.Second)
		r.wantState(t, 1, "", "") // until its confirms are there
		release()
		pass(2 * time.Second)
		if s := r.wantState(t, 2, "", ""); s.Pending != nil || s.Stats.Published != 6 {
			t.Errorf("state is %+v, want 6 events and nothing pending", s)
		}
		r.wantEvents(t, map[string]int{brokerA: 6})
		r.fleet.Patch()
		pass(2 * time.Second)
		r.wantEvents(t, map[string]int{brokerA: 6, brokerB: 3})
		if r.brokers.Running(brokerA) != 0 || r.brokers.Running(brokerB) != 1 {
			t.Errorf("%d clients of the old broker run and %d of the new, want none and 1", r.brokers.Running(brokerA), r.brokers.Running(brokerB))
		}
	})
}

// TestNewAPIMustAnswer holds the same of the API.
func TestNewAPIMustAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.fleet.SetAway(fleetB, true)
		r.Apply(wanted(1))
		pass(2 * time.Second)
		r.Apply(wanted(2, onFleet(fleetB)))
		pass(10 * time.Second)
		s := r.wantState(t, 1, "", "")
		if s.Pending == nil || !errors.Is(s.Pending.API, operatortest.ErrAway) || s.Pending.Broker != nil {
			t.Errorf("state is %+v, want generation 2 to wait for its API", s)
		}
		r.fleet.Patch("a")
		pass(2 * time.Second)
		r.wantEvents(t, map[string]int{brokerA: 4})
		r.fleet.SetAway(fleetB, false)
		pass(10 * time.Second)
		r.wantState(t, 2, "", "")
	})
}

// TestNothingToHoldOnTo holds that a connection which does not work is not
// waited with: the new one is no worse.
func TestNothingToHoldOnTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.brokers.SetAway(brokerA, true)
		r.brokers.SetAway(brokerB, true)
		r.Apply(wanted(1))
		pass(2 * time.Second)
		r.Apply(wanted(2, onBroker(brokerB)))
		pass(time.Second)
		s := r.wantState(t, 2, "", "")
		if !errors.Is(s.Stats.BrokerErr, operatortest.ErrAway) || strings.Contains(s.Stats.BrokerErr.Error(), "canary") {
			t.Errorf("the broker's error is %v, want what it says without a password", s.Stats.BrokerErr)
		}
		r.brokers.SetAway(brokerB, false)
		pass(10 * time.Second)
		r.wantEvents(t, map[string]int{brokerB: 3})
	})
}

// TestRefusalsLeaveWhatRuns holds that what can not be taken changes nothing.
func TestRefusalsLeaveWhatRuns(t *testing.T) {
	boom := errors.New("spec.pollInterval: boom")
	cases := map[string]struct {
		reason string
		do     func(*rig)
		want   instance.Reason
		loads  float64
	}{
		"Invalid":    {"a spec that makes no sense", func(r *rig) { r.Refuse(instance.Refusal{Generation: 2, Reason: instance.ReasonInvalid, Err: boom}) }, instance.ReasonInvalid, 0},
		"Secret":     {"a Secret that is missing", func(r *rig) { r.Refuse(instance.Refusal{Generation: 2, Reason: instance.ReasonSecret, Err: boom}) }, instance.ReasonSecret, 1},
		"Unopenable": {"a broker for which there is no client", func(r *rig) { r.Apply(wanted(2, onBroker(brokerB))) }, instance.ReasonUnopenable, 0},
		"Engine": {
			"what only the engine finds",
			func(r *rig) { r.Apply(wanted(2, func(s *sentinelconfig.Settings) { s.Sentinel.LabelSelector = "=" })) },
			instance.ReasonUnopenable, 0,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.brokers.SetRefuse(brokerB, true)
				tc.do(r)
				pass(time.Second)
				s := r.wantState(t, 0, tc.want, "")
				if err := r.Ready(); err == nil || err.Error() != s.Refusal.Err.Error() {
					t.Errorf("%s: ready says %v, want why nothing runs", tc.reason, err)
				}
				r.Apply(wanted(1))
				pass(2 * time.Second)
				r.wantState(t, 1, "", "")
				tc.do(r)
				pass(time.Second)
				s = r.wantState(t, 1, tc.want, "")
				if s.Seen != 2 || s.Refusal.Generation != 2 || strings.Contains(s.Refusal.Err.Error(), "canary") {
					t.Errorf("%s: state is %+v, want the refusal of generation 2, without a password", tc.reason, s)
				}
				r.fleet.Patch()
				pass(2 * time.Second)
				r.wantEvents(t, map[string]int{brokerA: 6})
				if err := r.Ready(); err != nil {
					t.Errorf("%s: not ready: %v", tc.reason, err)
				}
				if good, _ := r.metric(t, "config_last_reload_successful"); good != 0 {
					t.Errorf("%s: the metric says that the last change is in force", tc.reason)
				}
				if loads, _ := r.metric(t, "api_errors_total"); loads != tc.loads {
					t.Errorf("%s: %v errors counted, want %v", tc.reason, loads, tc.loads)
				}
				r.Apply(wanted(3))
				pass(time.Second)
				r.wantState(t, 3, "", "")
			})
		})
	}
}

// TestFailures holds that whatever panics or ends is started again after a
// while, and that what was announced before may come once more under the same id.
func TestFailures(t *testing.T) {
	cases := map[string]struct {
		reason  string
		begin   func(*rig)
		end     func(*rig)
		failure string
	}{
		"API": {
			"the client of the API panics",
			func(r *rig) { r.fleet.SetPanic(fleetA, true) }, func(r *rig) { r.fleet.SetPanic(fleetA, false) },
			"panic in the client of the fleet API",
		},
		"Publish": {
			"the client of the broker panics",
			func(r *rig) { r.brokers.SetPanic(brokerA, true); r.fleet.Patch() }, func(r *rig) { r.brokers.SetPanic(brokerA, false) },
			"panic in the broker's client",
		},
		"Ends": {
			"the client of the broker ends",
			func(r *rig) { r.brokers.End(brokerA, errors.New("for no reason at "+brokerA)) }, func(*rig) {},
			"the broker's client ended by itself\nfor no reason at ***",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.Apply(wanted(1))
				pass(2500 * time.Millisecond)
				tc.begin(r)
				for n := 0; r.State().Failure == nil && n < 100; n++ {
					pass(20 * time.Millisecond)
				}
				r.wantState(t, 1, "", tc.failure)
				if r.Ready() == nil {
					t.Errorf("%s: it says that it is ready", tc.reason)
				}
				tc.end(r)
				pass(10 * time.Second)
				if s := r.wantState(t, 1, "", ""); s.Changes != 1 {
					t.Errorf("%s: %d changes, want 1: a start is none", tc.reason, s.Changes)
				}
				if err := r.Ready(); err != nil {
					t.Errorf("%s: not ready afterwards: %v", tc.reason, err)
				}
				r.fleet.Patch()
				pass(2 * time.Second)
				last := map[string]bool{}
				for _, e := range r.brokers.Events() {
					last[e.Subject] = true
				}
				if len(last) != 3 {
					t.Errorf("%s: events about %d clusters, want 3", tc.reason, len(last))
				}
				if _, series := r.metric(t, "events_published_total"); series != 1 {
					t.Errorf("%s: %d series, want 1", tc.reason, series)
				}
				if n := r.brokers.Running(brokerA); n != 1 {
					t.Errorf("%s: %d clients run, want 1", tc.reason, n)
				}
			})
		})
	}
}

// TestPanicWhileOpening holds that what runs goes on, and that it is tried
// again.
func TestPanicWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Bool
		r := newRig(t, func(d *instance.Deps) {
			open := d.OpenBroker
			d.OpenBroker = func(b sentinelconfig.Broker) (instance.Broker, error) {
				if panics.Load() && b.URL == brokerB {
					panic("opening " + brokerB)
				}
				return open(b)
			}
		})
		panics.Store(true)
		r.Apply(wanted(1))
		pass(2 * time.Second)
		r.Apply(wanted(2, onBroker(brokerB)))
		pass(time.Second)
		r.wantState(t, 1, "", "panic in the instance: opening ***")
		r.fleet.Patch()
		pass(2 * time.Second)
		r.wantEvents(t, map[string]int{brokerA: 6})
		panics.Store(false)
		pass(time.Minute)
		r.wantState(t, 2, "", "")
	})
}

// TestStopsInOrder holds that nothing is published after the end, and that
// what is under way is awaited.
func TestStopsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		release := r.brokers.Hold(brokerA)
		r.Apply(wanted(1))
		pass(2 * time.Second)
		r.cancel()
		pass(time.Second)
		select {
		case <-r.done:
			t.Fatal("it ended with confirms outstanding")
		default:
		}
		release()
		pass(time.Second)
		select {
		case <-r.done:
		default:
			t.Fatal("it did not end when all was confirmed")
		}
		r.wantEvents(t, map[string]int{brokerA: 3})
	})
}

// TestLatestWins holds that of changes that come quickly only the last counts,
// and that connections of those between are closed.
func TestLatestWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		const away = "nats://away"
		r.brokers.SetAway(away, true)
		r.Apply(wanted(1))
		pass(2 * time.Second)
		for g := range int64(5) {
			r.Apply(wanted(2+g, onBroker(away+fmt.Sprint(g))))
			r.brokers.SetAway(away+fmt.Sprint(g), true)
			pass(time.Second)
		}
		r.Apply(wanted(9, onBroker(brokerB)))
		pass(2 * time.Second)
		r.wantState(t, 9, "", "")
		for g := range 5 {
			if n := r.brokers.Running(away + fmt.Sprint(g)); n != 0 {
				t.Errorf("%d clients of a broker that nobody wants any more", n)
			}
		}
		if s := r.State(); s.Changes != 2 {
			t.Errorf("%d changes, want 2", s.Changes)
		}
	})
}

// A fakeGroup owns everything while it runs.
type fakeGroup struct{ running, ended atomic.Bool }

func (g *fakeGroup) Run(ctx context.Context) error {
	g.running.Store(true)
	<-ctx.Done()
	g.running.Store(false)
	g.ended.Store(true)
	return nil
}

func (g *fakeGroup) Ready() error {
	if !g.running.Load() {
		return errors.New("not joined")
	}
	return nil
}

func (g *fakeGroup) Members() []string {
	if !g.running.Load() {
		return nil
	}
	return []string{"us"}
}

func (g *fakeGroup) Owns([]byte) bool                         { return g.running.Load() }
func (g *fakeGroup) Acquire([]byte) (release func(), ok bool) { return func() {}, g.running.Load() }
func (g *fakeGroup) Changed() <-chan struct{}                 { return nil }

// TestGroup holds that a replica joins when it is told to divide, stays a
// member over changes, and leaves when its sentinel has stopped.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		auto := func(s *sentinelconfig.Settings) { s.Sharding.Mode = v1alpha1.ShardingAuto }
		r := newRig(t, nil)
		r.Apply(wanted(1))
		pass(2 * time.Second)
		if s := r.State(); s.Grouped {
			t.Error("in a group without being told")
		}
		r.Apply(wanted(2, auto))
		pass(2 * time.Second)
		if s := r.wantState(t, 2, "", ""); !s.Grouped || s.Group != nil || !cmp.Equal(s.Members, []string{"us"}) {
			t.Errorf("state is %+v, want one of a group", s)
		}
		r.Apply(wanted(3, auto, onBroker(brokerB)))
		pass(2 * time.Second)
		if r.wantState(t, 3, "", ""); len(r.groups) != 1 || !r.groups[0].running.Load() {
			t.Errorf("joined %d times, want once", len(r.groups))
		}
		r.Apply(wanted(4))
		pass(2 * time.Second)
		if s := r.wantState(t, 4, "", ""); s.Grouped || !r.groups[0].ended.Load() {
			t.Error("still in a group")
		}
		r.Apply(wanted(5, auto))
		pass(2 * time.Second)
		release := r.brokers.Hold(brokerA)
		r.fleet.Patch()
		pass(2 * time.Second)
		r.cancel()
		pass(time.Second)
		if r.groups[1].ended.Load() {
			t.Error("it left the group with confirms outstanding")
		}
		release()
		<-r.done
		if !r.groups[1].ended.Load() {
			t.Error("it did not leave the group")
		}
	})
}
