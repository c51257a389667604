package operator_test

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

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

func TestRunsWhatIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInstanceRig(t, nil)
		pass(time.Second)
		r.wantState(t, 0, "", "")
		if err := r.Ready(); err == nil {
			t.Error("ready without a configuration")
		}
		r.Apply(newWantedConfig(1))
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
		r.fleet.BumpGenerations()
		pass(time.Minute)
		r.wantEvents(t, map[string]int{brokerA: 3})
		if _, series := r.metric(t, "events_published_total"); series != 0 || r.brokers.Running(brokerA) != 0 {
			t.Errorf("of an instance that has ended %d series and %d clients are left", series, r.brokers.Running(brokerA))
		}
	})
}

// TestChangesWhileItRuns checks that a change takes effect on existing connections, that no event
// is repeated, and that counters continue.
func TestChangesWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInstanceRig(t, nil)
		r.Apply(newWantedConfig(1))
		pass(2 * time.Second)
		before := r.fleet.Lists()
		r.Apply(newWantedConfig(2, func(s *sentinelconfig.Settings) { s.Sentinel.PollInterval = 100 * time.Millisecond }))
		pass(5 * time.Second)
		if n := r.fleet.Lists() - before; n < 45 {
			t.Errorf("%d lists in 5 s at a poll interval of 100 ms", n)
		}
		r.fleet.BumpGenerations("a")
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

		// An equal configuration in other words is only recorded.
		r.Apply(newWantedConfig(3, func(s *sentinelconfig.Settings) { s.Sentinel.PollInterval = 100 * time.Millisecond }))
		pass(time.Second)
		if s := r.wantState(t, 3, "", ""); s.Changes != 2 {
			t.Errorf("%d changes, want 2: the last says what is in force", s.Changes)
		}
	})
}

// TestNewBrokerMustAnswer checks that the old broker is used until the new one responds.
// Outstanding confirmations are awaited, and each event is published once, to one of the two.
func TestNewBrokerMustAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInstanceRig(t, nil)
		r.brokers.SetAway(brokerB, true)
		r.Apply(newWantedConfig(1))
		pass(2 * time.Second)
		r.Apply(newWantedConfig(2, onBroker(brokerB)))
		pass(10 * time.Second)
		s := r.wantState(t, 1, "", "")
		if s.Seen != 2 || s.Pending == nil || s.Pending.Generation != 2 || s.Pending.API != nil || !errors.Is(s.Pending.Broker, ErrAway) {
			t.Errorf("state is %+v, want generation 2 to wait for its broker", s)
		}
		if text := fmt.Sprint(s.Pending.Broker); strings.Contains(text, "canary") {
			t.Errorf("a password is shown: %s", text)
		}
		release := r.brokers.HoldConfirms(brokerA)
		r.fleet.BumpGenerations()
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
		r.fleet.BumpGenerations()
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
		r := newInstanceRig(t, nil)
		r.fleet.SetAway(fleetB, true)
		r.Apply(newWantedConfig(1))
		pass(2 * time.Second)
		r.Apply(newWantedConfig(2, onFleet(fleetB)))
		pass(10 * time.Second)
		s := r.wantState(t, 1, "", "")
		if s.Pending == nil || !errors.Is(s.Pending.API, ErrAway) || s.Pending.Broker != nil {
			t.Errorf("state is %+v, want generation 2 to wait for its API", s)
		}
		r.fleet.BumpGenerations("a")
		pass(2 * time.Second)
		r.wantEvents(t, map[string]int{brokerA: 4})
		r.fleet.SetAway(fleetB, false)
		pass(10 * time.Second)
		r.wantState(t, 2, "", "")
	})
}

// TestInstanceWithoutCurrentSentinel checks that a connection that does not work is replaced without a wait,
// because the new one is no worse.
func TestInstanceWithoutCurrentSentinel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInstanceRig(t, nil)
		r.brokers.SetAway(brokerA, true)
		r.brokers.SetAway(brokerB, true)
		r.Apply(newWantedConfig(1))
		pass(2 * time.Second)
		r.Apply(newWantedConfig(2, onBroker(brokerB)))
		pass(time.Second)
		s := r.wantState(t, 2, "", "")
		if !errors.Is(s.Stats.BrokerErr, ErrAway) || strings.Contains(s.Stats.BrokerErr.Error(), "canary") {
			t.Errorf("the broker's error is %v, want what it says without a password", s.Stats.BrokerErr)
		}
		r.brokers.SetAway(brokerB, false)
		pass(10 * time.Second)
		r.wantEvents(t, map[string]int{brokerB: 3})
	})
}

// TestInstanceStopsInOrder checks that nothing is published after the end, and that outstanding work is
// awaited.
func TestInstanceStopsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInstanceRig(t, nil)
		release := r.brokers.HoldConfirms(brokerA)
		r.Apply(newWantedConfig(1))
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

// TestInstanceLatestWins checks that only the last of several quick changes counts, and that the
// connections of the others are closed.
func TestInstanceLatestWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInstanceRig(t, nil)
		const away = "nats://away"
		r.brokers.SetAway(away, true)
		r.Apply(newWantedConfig(1))
		pass(2 * time.Second)
		for g := range int64(5) {
			r.brokers.SetAway(away+fmt.Sprint(g), true) // before the instance asks for it
			r.Apply(newWantedConfig(2+g, onBroker(away+fmt.Sprint(g))))
			pass(time.Second)
		}
		r.Apply(newWantedConfig(9, onBroker(brokerB)))
		pass(2 * time.Second)
		r.wantState(t, 9, "", "")
		for g := range 5 {
			if n := r.brokers.Running(away + fmt.Sprint(g)); n != 0 {
				t.Errorf("%d clients of a broker that nobody wants any more", n)
			}
		}
		if s := r.CurrentState(); s.Changes != 2 {
			t.Errorf("%d changes, want 2", s.Changes)
		}
	})
}

// A fakeGroup owns everything while it runs.
type fakeGroup struct {
	running, ended atomic.Bool
	ends           chan error
}

func (g *fakeGroup) Run(ctx context.Context) error {
	g.running.Store(true)
	defer g.ended.Store(true)
	defer g.running.Store(false)
	select {
	case <-ctx.Done():
		return nil
	case err := <-g.ends:
		return err
	}
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

// TestInstanceGroup checks that a replica joins when its configuration divides resources, stays a member
// over changes, and leaves when its sentinel has stopped.
func TestInstanceGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		auto := func(s *sentinelconfig.Settings) { s.Sharding.Mode = v1alpha1.ShardingAuto }
		r := newInstanceRig(t, nil)
		r.Apply(newWantedConfig(1))
		pass(2 * time.Second)
		if s := r.CurrentState(); s.Grouped {
			t.Error("in a group without being told")
		}
		r.Apply(newWantedConfig(2, auto))
		pass(2 * time.Second)
		if s := r.wantState(t, 2, "", ""); !s.Grouped || s.Group != nil || !cmp.Equal(s.Members, []string{"us"}) {
			t.Errorf("state is %+v, want one of a group", s)
		}
		r.Apply(newWantedConfig(3, auto, onBroker(brokerB)))
		pass(2 * time.Second)
		if r.wantState(t, 3, "", ""); len(r.groups) != 1 || !r.groups[0].running.Load() {
			t.Errorf("joined %d times, want once", len(r.groups))
		}
		r.Apply(newWantedConfig(4))
		pass(2 * time.Second)
		if s := r.wantState(t, 4, "", ""); s.Grouped || !r.groups[0].ended.Load() {
			t.Error("still in a group")
		}
		r.Apply(newWantedConfig(5, auto))
		pass(2 * time.Second)
		release := r.brokers.HoldConfirms(brokerA)
		r.fleet.BumpGenerations()
		pass(2 * time.Second)
		r.cancel()
		pass(time.Second)
		if r.groups[1].ended.Load() {
			t.Error("it left the shard group with confirms outstanding")
		}
		release()
		<-r.done
		if !r.groups[1].ended.Load() {
			t.Error("it did not leave the group")
		}
	})
}
