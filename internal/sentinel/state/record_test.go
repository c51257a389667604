package state_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

var start = time.Date(2026, 11, 20, 16, 0, 0, 0, time.UTC)

// at returns a time some seconds after start.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

const (
	changed   = "generation changed - new spec to reconcile"
	announced = "already published, waiting for adapters"
	fresh     = "max age not expired"
)

func TestRecordEntries(t *testing.T) {
	publish := func(s int, generation int64, event string) state.DecisionEntry {
		return state.DecisionEntry{At: at(s), Reason: changed, Published: true, Generation: generation, EventID: event}
	}
	wait := func(s int, generation int64) state.DecisionEntry {
		return state.DecisionEntry{At: at(s), Reason: announced, Generation: generation}
	}
	counted := func(e state.DecisionEntry, first, times int) state.DecisionEntry {
		e.First, e.Times = at(first), times
		return e
	}
	cases := map[string]struct {
		reason string
		do     func(r *state.DecisionRecord)
		want   []state.DecisionEntry
	}{
		"Unknown": {
			reason: "a skip opens no record",
			do:     func(r *state.DecisionRecord) { r.RecordDecisionIfKnown([]byte("a"), wait(1, 1)) },
		},
		"InARow": {
			reason: "the same decision in a row is one entry, with the inputs of the last",
			do: func(r *state.DecisionRecord) {
				r.RecordDecision([]byte("a"), publish(1, 1, "e1"))
				r.RecordDecisionIfKnown([]byte("a"), wait(2, 1))
				r.RecordDecisionIfKnown([]byte("a"), wait(3, 1))
				r.RecordDecisionIfKnown([]byte("a"), wait(4, 1))
			},
			want: []state.DecisionEntry{counted(wait(4, 1), 2, 3), counted(publish(1, 1, "e1"), 1, 1)},
		},
		"OtherGeneration": {
			reason: "a new generation is another decision",
			do: func(r *state.DecisionRecord) {
				r.RecordDecision([]byte("a"), publish(1, 1, "e1"))
				r.RecordDecision([]byte("a"), publish(2, 2, "e2"))
			},
			want: []state.DecisionEntry{counted(publish(2, 2, "e2"), 2, 1), counted(publish(1, 1, "e1"), 1, 1)},
		},
		"Outcomes": {
			reason: "a confirm ends the failures of its event, and a later failure does not undo it",
			do: func(r *state.DecisionRecord) {
				r.RecordDecision([]byte("a"), publish(1, 1, "e1"))
				r.RecordFailed("a", "e1", at(2), errors.New("publish: no confirmation from the broker in time"))
				r.RecordDecision([]byte("a"), publish(3, 2, "e2"))
				r.RecordFailed("a", "e2", at(4), errors.New("gone"))
				r.RecordConfirmed("a", "e2", at(5))
				r.RecordFailed("a", "e2", at(6), errors.New("gone"))
				r.RecordConfirmed("a", "never", at(7))
				r.RecordConfirmed("b", "e2", at(8))
			},
			want: []state.DecisionEntry{
				func() state.DecisionEntry { e := counted(publish(3, 2, "e2"), 3, 1); e.Confirmed = at(5); return e }(),
				func() state.DecisionEntry {
					e := counted(publish(1, 1, "e1"), 1, 1)
					e.Err = "2026-11-20T16:00:02Z: publish: no confirmation from the broker in time"
					return e
				}(),
			},
		},
		"SameEventAgain": {
			reason: "an event that is tried again in the next round keeps what is known of it",
			do: func(r *state.DecisionRecord) {
				r.RecordDecision([]byte("a"), publish(1, 1, "e1"))
				r.RecordFailed("a", "e1", at(2), errors.New("gone"))
				r.RecordDecision([]byte("a"), publish(3, 1, "e1"))
			},
			want: []state.DecisionEntry{func() state.DecisionEntry {
				e := counted(publish(3, 1, "e1"), 1, 2)
				e.Err = "2026-11-20T16:00:02Z: gone"
				return e
			}()},
		},
		"NextEvent": {
			reason: "another event has an outcome of its own",
			do: func(r *state.DecisionRecord) {
				r.RecordDecision([]byte("a"), publish(1, 1, "e1"))
				r.RecordConfirmed("a", "e1", at(2))
				r.RecordDecision([]byte("a"), publish(11, 1, "e2"))
			},
			want: []state.DecisionEntry{counted(publish(11, 1, "e2"), 1, 2)},
		},
		"LongTexts": {
			reason: "nothing that comes from outside is kept at any length",
			do: func(r *state.DecisionRecord) {
				r.RecordDecision([]byte("a"), state.DecisionEntry{At: at(1), Phase: strings.Repeat("é", 1000), Err: strings.Repeat("x", 1000)})
				r.RecordDecision([]byte(strings.Repeat("i", 257)), state.DecisionEntry{At: at(1)})
			},
			want: []state.DecisionEntry{{
				At: at(1), First: at(1), Times: 1,
				Phase: strings.Repeat("é", 30) + "…", Err: strings.Repeat("x", 253) + "…",
			}},
		},
		"FarAwayTimes": {
			reason: "a time that has no text is the nearest that has one",
			do: func(r *state.DecisionRecord) {
				r.RecordDecision([]byte("a"), state.DecisionEntry{At: at(1), Next: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), Since: time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)})
			},
			want: []state.DecisionEntry{{
				At: at(1), First: at(1), Times: 1,
				Next: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), Since: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
			}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := state.NewDecisionRecord(10)
			tc.do(r)
			if diff := cmp.Diff(tc.want, r.ListDecisions("a")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRecordModel holds a record against the plain way to do it: a list in the order
// of Note, cut to the limit, of lists cut to the depth.
func TestRecordModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type known struct {
			id      string
			reasons []string // the newest first
			times   []int
		}
		limit := rapid.IntRange(0, 5).Draw(t, "limit")
		r := state.NewDecisionRecord(limit)
		var model []*known // the most recently noted first
		note := func(k *known, reason string) {
			if len(k.reasons) > 0 && k.reasons[0] == reason {
				k.times[0]++
				return
			}
			k.reasons, k.times = slices.Insert(k.reasons, 0, reason), slices.Insert(k.times, 0, 1)
			k.reasons, k.times = k.reasons[:min(len(k.reasons), state.RecordDepth)], k.times[:min(len(k.times), state.RecordDepth)]
		}
		for i := range rapid.IntRange(0, 200).Draw(t, "steps") {
			id := fmt.Sprint("r", rapid.IntRange(0, 9).Draw(t, "id"))
			reason := rapid.SampledFrom([]string{changed, announced, fresh}).Draw(t, "reason")
			e := state.DecisionEntry{At: at(i), Reason: reason}
			n := slices.IndexFunc(model, func(k *known) bool { return k.id == id })
			if rapid.Bool().Draw(t, "if known") {
				r.RecordDecisionIfKnown([]byte(id), e)
				if n >= 0 {
					note(model[n], reason)
				}
				continue
			}
			r.RecordDecision([]byte(id), e)
			k := &known{id: id}
			if n >= 0 {
				k = model[n]
				model = slices.Delete(model, n, n+1)
			}
			note(k, reason)
			model = slices.Insert(model, 0, k)
			model = model[:min(len(model), limit)]
		}
		if r.Len() != len(model) {
			t.Fatalf("%d resources are kept, want %d", r.Len(), len(model))
		}
		for i, res := range r.ListLatest(100) {
			got := known{id: res.ID}
			for _, e := range res.Entries {
				got.reasons, got.times = append(got.reasons, e.Reason), append(got.times, e.Times)
			}
			if diff := cmp.Diff(*model[i], got, cmp.AllowUnexported(known{})); diff != "" {
				t.Fatalf("resource %d (-want +got):\n%s", i, diff)
			}
			if diff := cmp.Diff(res.Entries, r.ListDecisions(res.ID)); diff != "" {
				t.Fatalf("of one and of all (-all +one):\n%s", diff)
			}
		}
	})
}

// TestRecordOfUnknownCostsNothing: the round asks for every resource that it skips.
func TestRecordOfUnknownCostsNothing(t *testing.T) {
	r := state.NewDecisionRecord(100)
	r.RecordDecision([]byte("known"), state.DecisionEntry{At: start, Reason: changed})
	id := []byte("01a1f9b6-bee5-729b-8247-7017e854ce96")
	e := state.DecisionEntry{At: start, Reason: fresh, Phase: "Ready"}
	if n := testing.AllocsPerRun(100, func() { r.RecordDecisionIfKnown(id, e) }); n != 0 {
		t.Errorf("a skip of an unknown resource allocates %v times, want 0", n)
	}
	known := []byte("known")
	r.RecordDecisionIfKnown(known, e)
	if n := testing.AllocsPerRun(100, func() { r.RecordDecisionIfKnown(known, e) }); n != 0 {
		t.Errorf("a skip in a row allocates %v times, want 0", n)
	}
}

func TestRecordConcurrentUse(t *testing.T) {
	r := state.NewDecisionRecord(8)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				id := fmt.Sprint("r", (i*7+g)%16)
				e := state.DecisionEntry{At: at(i), Reason: changed, Published: true, Generation: int64(i), EventID: fmt.Sprint("e", i)}
				r.RecordDecision([]byte(id), e)
				r.RecordDecisionIfKnown([]byte(id), e)
				r.RecordConfirmed(id, e.EventID, at(i))
				r.RecordFailed(id, e.EventID, at(i), errors.New("gone"))
				if n := len(r.ListLatest(100)); n > 8 {
					t.Errorf("%d resources, want 8 at most", n)
				}
			}
		})
	}
	wg.Wait()
	if r.Len() != 8 {
		t.Errorf("%d resources, want 8", r.Len())
	}
}

func BenchmarkNoteIfKnownUnknown(b *testing.B) {
	r := state.NewDecisionRecord(10_000)
	for i := range 10_000 {
		r.RecordDecision([]byte(fmt.Sprintf("01a1f9b6-bee5-729b-8247-%012d", i)), state.DecisionEntry{At: start})
	}
	id := []byte("01a1f9b6-bee5-729b-8247-7017e854ce96")
	e := state.DecisionEntry{At: start, Reason: fresh, Phase: "Ready"}
	for b.Loop() {
		r.RecordDecisionIfKnown(id, e)
	}
}
