package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// A watched instance is one whose state a test sets.
type watched struct {
	*reporter
	mu    sync.Mutex
	state InstanceState
}

func (w *watched) get() InstanceState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// set changes the state, as an instance with a notification does, and waits for the effects.
func (w *watched) set(change func(*InstanceState)) {
	w.mu.Lock()
	change(&w.state)
	w.mu.Unlock()
	w.requestReport()
	synctest.Wait()
}

func object() *v1alpha1.SentinelConfig {
	return &v1alpha1.SentinelConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "one", UID: "1", Generation: 1}}
}

// newWatched runs a reporter, in a bubble.
func newWatched(t *testing.T, identity string, h host, tell eventEmitter) *watched {
	t.Helper()
	ref := reference{NamespacedName: types.NamespacedName{Namespace: "n", Name: "one"}, UID: "1"}
	w := &watched{reporter: newReporter(ref, identity, h, tell, slog.New(slog.DiscardHandler))}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { w.reportChangesThenRemoveStatus(ctx, w.get) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

// good sets the state of an instance without problems.
func good(s *InstanceState) {
	s.Seen, s.InForce, s.Changes, s.Begun = 1, 1, 1, time.Now()
	s.Stats = sentinel.Stats{Rounds: 1, LastRound: time.Now(), Resources: 3, Published: 3}
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestStatusIsWrittenWhenItMeansSomething checks that significant changes are written at once,
// counts at an interval, and equal states not at all.
func TestStatusIsWrittenWhenItMeansSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, tell := newFakeHost(object()), &fakeTeller{}
		w := newWatched(t, "us", h, tell)
		pass(time.Minute)
		if writes := h.written(); len(writes) != 0 {
			t.Errorf("%d writes about what nothing is known of", len(writes))
		}
		w.set(good)
		if writes := h.written(); len(writes) != 1 || h.status().ObservedGeneration != 1 {
			t.Errorf("%d writes, want 1 at once", len(writes))
		}
		pass(time.Minute)
		if writes := h.written(); len(writes) != 0 {
			t.Errorf("%d writes though nothing happens", len(writes))
		}
		for range 600 { // a round every 100 ms
			time.Sleep(100 * time.Millisecond)
			w.set(func(s *InstanceState) {
				s.Stats.Rounds++
				s.Stats.LastRound = time.Now()
				s.Stats.Published++
			})
		}
		if n := len(h.written()); n < 5 || n > 7 {
			t.Errorf("%d writes of counts in a minute, want one every ten seconds", n)
		}
		changed := meta.FindStatusCondition(h.status().Conditions, v1alpha1.ConditionReady).LastTransitionTime
		w.set(func(s *InstanceState) { s.Stats.BrokerErr = errors.New("gone") })
		if writes := h.written(); len(writes) != 1 {
			t.Errorf("%d writes, want 1 at once when the broker goes", len(writes))
		}
		c := meta.FindStatusCondition(h.status().Conditions, v1alpha1.ConditionReady)
		if c.Status != metav1.ConditionFalse || c.Message != "gone" || !c.LastTransitionTime.After(changed.Time) {
			t.Errorf("ready is %+v, want false since just now", c)
		}
		for i := range 50 { // the same, in other words
			w.set(func(s *InstanceState) { s.Stats.BrokerErr = fmt.Errorf("gone, port %d", i) })
		}
		if writes := h.written(); len(writes) != 0 {
			t.Errorf("%d writes of other words for the same, want none at once", len(writes))
		}
		if diff := cmp.Diff([]string{"ConfigLoaded", "!BrokerUnreachable"}, tell.take()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// TestAPIServerAway checks that a failed write of the status is repeated when it can succeed,
// without constant retries.
func TestAPIServerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHost(object())
		w := newWatched(t, "us", h, &fakeTeller{})
		h.setAway(true)
		w.set(good)
		pass(time.Minute)
		h.setAway(false)
		pass(20 * time.Second)
		if writes := h.written(); len(writes) != 1 || h.status().EventsPublished != 3 {
			t.Errorf("%d writes, want 1 when the API server is back: %+v", len(writes), h.status())
		}
	})
}

// TestReplicasShareAStatus checks the status of several replicas. Each has its entry, the first of
// the group writes all other fields, another takes over without losing a field, and entries of
// replicas that are gone are removed.
func TestReplicasShareAStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHost(object())
		grouped := func(members ...string) func(*InstanceState) {
			return func(s *InstanceState) { s.Grouped, s.Members = true, members }
		}
		a, b := newWatched(t, "a", h, &fakeTeller{}), newWatched(t, "b", h, &fakeTeller{})
		for _, w := range []*watched{a, b} {
			w.set(func(s *InstanceState) { good(s); grouped("a", "b")(s) })
		}
		if diff := cmp.Diff([]string{component + "/a", component, component + "/b"}, h.written()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		pass(15 * time.Second)
		a.set(func(s *InstanceState) { s.Stats.Published++; s.Stats.LastRound = time.Now() })
		pass(15 * time.Second)
		s := h.status()
		if s.ResourcesWatched != 6 || s.EventsPublished != 7 || len(s.Replicas) != 2 || s.Replicas[0].EventsPublished != 4 {
			t.Errorf("status is %+v, want the sums of two replicas", s)
		}
		before := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady).LastTransitionTime

		// the first is lost
		pass(10 * time.Second)
		a.set(func(s *InstanceState) { s.Members = nil; s.Group = errors.New("fenced") })
		h.written()
		b.set(grouped("b"))
		s = h.status()
		if len(s.Replicas) != 1 || s.Replicas[0].Name != "b" || s.ResourcesWatched != 3 {
			t.Errorf("status is %+v, want that of the replica that is left", s)
		}
		if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c == nil || !c.LastTransitionTime.Equal(&before) {
			t.Errorf("ready is %+v, want it true since %s", c, before)
		}

		// no division any more
		b.set(func(s *InstanceState) { s.Grouped, s.Members, s.InForce, s.Seen = false, nil, 2, 2 })
		if s := h.status(); len(s.Replicas) != 0 || s.ObservedGeneration != 2 || len(s.Conditions) != 4 {
			t.Errorf("status is %+v, want one without replicas", s)
		}
	})
}

// TestNobodyInTheGroup checks that the status reports a problem if no replica becomes a member. It
// is not changed if one is a member.
func TestNobodyInTheGroup(t *testing.T) {
	out := func(s *InstanceState) {
		s.Grouped, s.Group, s.Stats.Resources = true, errors.New("leases are forbidden"), 0
	}
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHost(object())
		a, b := newWatched(t, "a", h, &fakeTeller{}), newWatched(t, "b", h, &fakeTeller{})
		a.set(good)
		for _, w := range []*watched{a, b} {
			w.set(func(s *InstanceState) { good(s); out(s) })
		}
		pass(time.Minute)
		s := h.status()
		if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c.Reason != reasonUngrouped || c.Message != "leases are forbidden" {
			t.Errorf("ready is %+v, want why nothing is watched", c)
		}
		if len(s.Replicas) != 2 {
			t.Errorf("status is %+v, want the entries of both", s)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHost(object())
		a, b := newWatched(t, "a", h, &fakeTeller{}), newWatched(t, "b", h, &fakeTeller{})
		a.set(func(s *InstanceState) { good(s); s.Grouped, s.Members = true, []string{"a"} })
		b.set(func(s *InstanceState) { good(s); out(s) })
		pass(45 * time.Second)
		if c := meta.FindStatusCondition(h.status().Conditions, v1alpha1.ConditionReady); c.Status != metav1.ConditionTrue {
			t.Errorf("ready is %+v, want what the member says", c)
		}
	})
}

// TestLeaving checks that a replica removes its entry when it stops.
func TestLeaving(t *testing.T) {
	h := newFakeHost(object())
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t, "a", h, &fakeTeller{})
		w.set(func(s *InstanceState) { good(s); s.Grouped, s.Members = true, []string{"a"} })
		if s := h.status(); len(s.Replicas) != 1 {
			t.Errorf("status is %+v, want an entry", s)
		}
	})
	if s := h.status(); len(s.Replicas) != 0 || len(s.Conditions) != 4 {
		t.Errorf("status is %+v, want no entry, and conditions for the next", s)
	}
}

// TestConditions checks the conditions for each state.
func TestConditions(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	boom := errors.New("boom")
	settled := func(s *InstanceState) { good(s); s.Seen, s.InForce, s.Begun = 2, 2, now.Add(-time.Minute) }
	cases := map[string]struct {
		reason                    string
		change                    func(*InstanceState)
		ready, valid, api, broker string
	}{
		"Good": {"all is well", settled, "True Running generation 2", "True Applied generation 2 is active", "True Reachable", "True Reachable"},
		"Refused": {
			"what was good goes on",
			func(s *InstanceState) {
				settled(s)
				s.Seen, s.Refusal = 3, &Refusal{Generation: 3, Reason: ReasonInvalid, Err: boom}
			},
			"True Running generation 2", "False InvalidSpec boom; generation 2 stays active", "True", "True",
		},
		"RefusedAtFirst": {
			"there is none that could go on",
			func(s *InstanceState) {
				s.Seen, s.Refusal = 1, &Refusal{Generation: 1, Reason: ReasonSecret, Err: boom}
			},
			"False SecretMissing boom", "False SecretMissing boom; no sentinel is running", "Unknown NoConfiguration", "Unknown NoConfiguration",
		},
		"Pending": {
			"the new broker does not answer",
			func(s *InstanceState) {
				settled(s)
				s.Seen, s.Pending = 3, &PendingConnections{Generation: 3, Broker: boom}
			},
			"True Running", "False NewConnectionFailed spec.broker: cannot connect to the new broker: boom; generation 2 stays", "True", "True",
		},
		"PendingAPI": {
			"the new API does not answer",
			func(s *InstanceState) {
				settled(s)
				s.Seen, s.Pending = 3, &PendingConnections{Generation: 3, API: boom}
			},
			"True Running", "False NewConnectionFailed spec.hyperfleetAPI: ", "True", "True",
		},
		"OnItsWay":   {"nothing is known yet", func(s *InstanceState) { s.Seen = 1 }, "False NoConfiguration", "Unknown Starting generation 1 is being applied", "Unknown", "Unknown"},
		"APIDown":    {"the API is away", func(s *InstanceState) { settled(s); s.Stats.APIErr = boom }, "False APIUnreachable boom", "True", "False Unreachable boom", "True"},
		"BrokerDown": {"the broker is away", func(s *InstanceState) { settled(s); s.Stats.BrokerErr = boom }, "False BrokerUnreachable boom", "True", "True", "False Unreachable boom"},
		"Starting": {
			"connections take a moment",
			func(s *InstanceState) { settled(s); s.Begun = now.Add(-time.Second); s.Stats.BrokerErr = boom },
			"False Starting", "True", "True", "Unknown Starting",
		},
		"Failed":  {"it panicked", func(s *InstanceState) { settled(s); s.Failure = errors.New("panic: x\nstack") }, "False SentinelFailed the sentinel failed, and the process restarts it: panic: x", "True", "True", "True"},
		"Stuck":   {"it makes no progress", func(s *InstanceState) { settled(s); s.Live = boom }, "False PollLoopStalled boom", "True", "True", "True"},
		"NoGroup": {"it owns nothing", func(s *InstanceState) { settled(s); s.Grouped, s.Group = true, boom }, "False ReplicaFenced boom", "True", "True", "True"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var s InstanceState
			tc.change(&s)
			status := buildStatus(&v1alpha1.SentinelConfigStatus{}, s, now)
			for typ, want := range map[string]string{
				v1alpha1.ConditionReady: tc.ready, v1alpha1.ConditionConfigValid: tc.valid,
				v1alpha1.ConditionAPIReachable: tc.api, v1alpha1.ConditionBrokerReachable: tc.broker,
			} {
				c := meta.FindStatusCondition(status.Conditions, typ)
				got := fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message)
				parts := strings.SplitN(want, " ", 3)
				for _, part := range parts {
					if !strings.Contains(got, part) {
						t.Errorf("%s: %s is %q, want %q", tc.reason, typ, got, want)
						break
					}
				}
				if strings.Contains(got, "stack") || c.Reason == "" {
					t.Errorf("%s: %s is %q", tc.reason, typ, got)
				}
			}
		})
	}
}

// TestStory checks that each change causes one event.
func TestStory(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	boom := errors.New("boom")
	var told reportedEvents
	var got []string
	step := func(change func(*InstanceState), s *InstanceState) []string {
		change(s)
		got = nil
		for range 3 { // of which two are nothing new
			told = told.emitChanges(*s, now, func(warning bool, reason, _ string) {
				if warning {
					reason = "!" + reason
				}
				got = append(got, reason)
			})
		}
		return got
	}
	var s InstanceState
	for i, tc := range []struct {
		change func(*InstanceState)
		want   []string
	}{
		{func(s *InstanceState) { s.Seen = 1 }, nil},
		{func(s *InstanceState) {
			s.Refusal = &Refusal{Generation: 1, Reason: ReasonSecret, Err: boom}
		}, []string{"!ConfigLoadFailed"}},
		{func(s *InstanceState) { good(s); s.Refusal, s.Begun = nil, now.Add(-time.Minute) }, []string{"ConfigLoaded"}},
		{func(s *InstanceState) { s.Stats.APIErr = boom }, []string{"!APIUnreachable"}},
		{func(s *InstanceState) { s.Stats.APIErr = errors.New("other words") }, nil},
		{func(s *InstanceState) { s.Stats.APIErr, s.Stats.BrokerErr = nil, boom }, []string{"APIReachable", "!BrokerUnreachable"}},
		{func(s *InstanceState) { s.Stats.BrokerErr = nil }, []string{"BrokerReachable"}},
		{func(s *InstanceState) {
			s.Seen, s.Refusal = 2, &Refusal{Generation: 2, Reason: ReasonInvalid, Err: boom}
		}, []string{"!ConfigInvalid"}},
		{func(s *InstanceState) {
			s.Seen, s.Refusal = 3, &Refusal{Generation: 3, Reason: ReasonInvalid, Err: boom}
		}, []string{"!ConfigInvalid"}},
		{func(s *InstanceState) { s.Refusal, s.Pending = nil, &PendingConnections{Generation: 3, Broker: boom} }, []string{"!NewConnectionFailed"}},
		{func(s *InstanceState) { s.Pending, s.InForce = nil, 3; s.Changes++ }, []string{"ConfigChanged"}},
		{func(s *InstanceState) { s.Failure, s.Stats.BrokerErr = boom, boom }, []string{"!SentinelFailed"}},
		{func(s *InstanceState) { s.Failure, s.Begun = nil, now.Add(-time.Second) }, nil},
		{func(s *InstanceState) { s.Begun = now.Add(-time.Minute) }, []string{"!BrokerUnreachable"}},
	} {
		if diff := cmp.Diff(tc.want, step(tc.change, &s)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}
