package inspect_test

import (
	"context"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// A recorder is the record of a running sentinel.
type recorder struct {
	decisions map[string][]state.ServedDecision
	err       error
}

func (r recorder) URL() string { return "http://sentinel.example" }

func (r recorder) FetchDecisions(_ context.Context, id string) (state.RecordResponse, error) {
	if r.err != nil {
		return state.RecordResponse{}, r.err
	}
	var a state.RecordResponse
	if list := r.decisions[id]; len(list) > 0 {
		a.Resources = append(a.Resources, state.ServedDecisions{Watch: "clusters region=eu", ResourceID: id, Decisions: list})
	}
	return a, nil
}

func TestWhy(t *testing.T) {
	cases := map[string]struct {
		reason   string
		id       string
		recorder func() recorder
		state    inspect.State
		rule     string
		next     time.Duration // from now; 0 is none
		due      bool
	}{
		"Changed": {
			reason: "a new generation is due at once", id: "c1",
			state: inspect.StateDue, due: true,
			rule: "generation changed - new spec to reconcile: generation is 2, observed generation is 1",
		},
		"Aged": {
			reason: "the age of its phase has passed", id: "c2",
			state: inspect.StateDue, due: true,
			rule: "max age expired (not ready): 42s since last_updated_time, max_age_not_ready is 10s",
		},
		"Fresh": {
			reason: "it falls due when the age has passed", id: "c6",
			state: inspect.StateWaiting, next: 20 * time.Minute,
			rule: "max age not expired: 10m since last_updated_time, max_age_ready is 30m",
		},
		"Future": {
			reason: "a time that can not be makes it due", id: "c5",
			state: inspect.StateDue, due: true,
			rule: "max age expired (ready): the status time is in the future, treated as due",
		},
		"Held": {
			reason: "what the running sentinel announced of this generation is believed", id: "c2",
			recorder: func() recorder {
				return recorder{decisions: map[string][]state.ServedDecision{"c2": {
					{At: time.Now(), Publish: false, Reason: "already published, waiting for adapters", Generation: 1},
					{At: time.Now().Add(-4 * time.Second), Publish: true, Generation: 1, EventID: "evt-1", ConfirmedAt: time.Now().Add(-4 * time.Second)},
				}}}
			},
			state: inspect.StateHeld, due: true, next: 6 * time.Second,
			rule: "max age expired (not ready): 42s since last_updated_time, max_age_not_ready is 10s; an event for generation 1 was published, waiting for adapters",
		},
		"AnnouncedBefore": {
			reason: "an announcement of the generation before holds nothing", id: "c1",
			recorder: func() recorder {
				return recorder{decisions: map[string][]state.ServedDecision{"c1": {
					{At: time.Now(), Publish: true, Generation: 1, EventID: "evt-1", ConfirmedAt: time.Now()},
				}}}
			},
			state: inspect.StateDue, due: true,
			rule: "generation changed - new spec to reconcile: generation is 2, observed generation is 1",
		},
		"NotConfirmed": {
			reason: "an event that no broker has holds nothing", id: "c2",
			recorder: func() recorder {
				return recorder{decisions: map[string][]state.ServedDecision{"c2": {
					{At: time.Now(), Publish: true, Generation: 1, EventID: "evt-1", Error: "no confirmation from the broker in time"},
				}}}
			},
			state: inspect.StateDue, due: true,
			rule: "max age expired (not ready): 42s since last_updated_time, max_age_not_ready is 10s",
		},
		"NotWatched": {
			reason: "the selector comes first, and the requirement that fails is named", id: "c0",
			state: inspect.StateNotWatched,
			rule:  `the selector does not match: region=eu required, but region is "us"`,
		},
		"NotFound": {
			reason: "what is not there is no error", id: "c9",
			state: inspect.StateNotFound, rule: "not found in clusters",
		},
		"ByName": {
			reason: "a name will do", id: "name-c1",
			state: inspect.StateDue, due: true,
			rule: "generation changed - new spec to reconcile: generation is 2, observed generation is 1",
		},
		"SentinelDown": {
			reason:   "the rest is told all the same",
			id:       "c1",
			recorder: func() recorder { return recorder{err: errors.New("connection refused")} },
			state:    inspect.StateDue, due: true,
			rule: "generation changed - new spec to reconcile: generation is 2, observed generation is 1",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var rec recorder
				if tc.recorder != nil {
					rec = tc.recorder()
				}
				got, err := inspect.ExplainDecision(t.Context(), watch(t, "eu.yaml", sample(), "region=eu"), tc.id, rec)
				if err != nil {
					t.Fatal(err)
				}
				if got.State != tc.state || got.Rule != tc.rule {
					t.Errorf("%s: it is %s: %s", tc.reason, got.State, got.Rule)
				}
				var next time.Duration
				if !got.Next.IsZero() {
					next = time.Until(got.Next)
				}
				if next != tc.next {
					t.Errorf("%s: next in %s, want %s", tc.reason, next, tc.next)
				}
				if tc.due && (got.Decision == nil || !got.Decision.Due || !strings.HasPrefix(got.Decision.EventID, "evt-")) {
					t.Errorf("%s: the decision is %+v", tc.reason, got.Decision)
				}
				if d := got.Decision; d != nil && d.Next.Before(d.Since) {
					t.Errorf("%s: due at %s, before the time that is counted from, %s", tc.reason, d.Next, d.Since)
				}
				if rec.err != nil && got.Sentinel.Error != "connection refused" {
					t.Errorf("%s: of the sentinel it says %+v", tc.reason, got.Sentinel)
				}
			})
		})
	}
}

// TestWhySaysByWhat spells the inputs out.
func TestWhySaysByWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "eu.yaml", sample(), "region=eu,tier notin (silver)")
		w.Early = func([]byte) float64 { return 0.1 }
		got, err := inspect.ExplainDecision(t.Context(), w, "c3", recorder{decisions: map[string][]state.ServedDecision{
			"c3": {{At: time.Now().UTC(), Publish: true, Generation: 1, EventID: "evt-1", Error: "no confirmation from the broker in time"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().UTC()
		since := now.Add(-31 * time.Minute)
		v := w.Decider.Decide(&decision.Resource{Generation: 1, ObservedGeneration: 1, Phase: "Ready", LastUpdated: since, Early: 0.1}, now)
		eu, gold := "eu", "gold"
		want := &inspect.WhyReport{
			Config: "eu.yaml", Endpoint: "http://fleet.example", Collection: "clusters", Profile: "generation-then-age",
			Time: now, ID: "c3", Name: "name-c3", State: inspect.StateDue,
			Rule:     "max age expired (ready): 31m since last_updated_time, max_age_ready is 30m less 3m of jitter",
			Selector: "region=eu,tier!=silver",
			Requirements: []inspect.Requirement{
				{Requirement: "region=eu", Label: "region", Value: &eu, Met: true}, {Requirement: "tier!=silver", Label: "tier", Value: &gold, Met: true},
			},
			Inputs: &inspect.Inputs{
				Generation: 1, ObservedGeneration: 1, Phase: "Ready", Ready: true,
				LastUpdatedTime: since, LastTransitionTime: since, MaxAgeSeconds: 1800, EarlySeconds: 180,
			},
			Decision: &inspect.Decision{
				Due: true, Reason: "max age expired (ready)", Since: since, Next: since.Add(27 * time.Minute), IntervalSeconds: 1620,
				EventID: decision.DeriveEventID("c3", 1, v, now),
			},
			Sentinel: inspect.Recorded{URL: "http://sentinel.example"},
		}
		last := state.ServedDecision{At: now, Publish: true, Generation: 1, EventID: "evt-1", Error: "no confirmation from the broker in time"}
		want.Sentinel.LastEvent = &last
		want.Sentinel.Watches = []state.ServedDecisions{{Watch: "clusters region=eu", ResourceID: "c3", Decisions: []state.ServedDecision{last}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("why (-want +got):\n%s", diff)
		}
	})
}

func TestWhyErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := sample()
		twin := resource("c7", v1.PhaseReady, 0)
		twin.Name = "name-c1"
		f.put(v1.CollectionClusters, twin)
		w := watch(t, "eu.yaml", f, "")
		if _, err := inspect.ExplainDecision(t.Context(), w, "name-c1", recorder{}); err == nil || !strings.Contains(err.Error(), "c1, c7") {
			t.Errorf("of two of one name: %v", err)
		}
		f.before = func(string, url.Values) error { return errDown }
		if _, err := inspect.ExplainDecision(t.Context(), w, "c1", recorder{}); !errors.Is(err, errDown) {
			t.Errorf("of an API that is down: %v", err)
		}
	})
}

// TestWhyOfWhatCanNotBeRead checks that the report contains the fault of an unreadable resource.
func TestWhyOfWhatCanNotBeRead(t *testing.T) {
	got, err := inspect.ExplainDecision(t.Context(), watch(t, "all.yaml", single(`{"id":"a","generation":"x"}`), ""), "a", recorder{})
	if err != nil || got.State != inspect.StateUnreadable || !strings.Contains(got.Rule, "wrong_type at generation") {
		t.Errorf("got %+v: %v", got, err)
	}
}

// A single is an API with one resource.
type single string

func (s single) ListPage(context.Context, string, url.Values, []byte) ([]byte, error) {
	return []byte(s), nil
}

func (s single) ListPageIf(context.Context, string, url.Values, string, []byte) ([]byte, io.ReadCloser, string, error) {
	return []byte(s), nil, "", nil
}
