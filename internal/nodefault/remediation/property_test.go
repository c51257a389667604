package remediation

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// TestRemediation verifies that, with random results of a janitor, people and crashes, a
// remedy is not requested more often than allowed, never twice at a time and not after
// its cancellation, and that each action is recorded once.
func TestRemediation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		remedies := rapid.SliceOfN(rapid.SampledFrom([]faults.Remedy{faults.RemedyReboot, faults.RemedyTerminate, faults.RemedySupport}), 1, 3).Draw(t, "remedies")
		w := newFixture(t, Config{}, slices.Compact(remedies)...)
		deleted := false // by a person
		asked := 0       // number of objects at that time
		accepted := map[string]bool{}
		w.lose = func() bool { return rapid.IntRange(0, 4).Draw(t, "lost") == 0 }
		t.Repeat(map[string]func(*rapid.T){
			"step": func(*rapid.T) { w.step() },
			"accept": func(t *rapid.T) {
				a := w.underWay(t)
				accepted[a.GetName()] = true
				w.says(a, v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
			},
			"succeed": func(t *rapid.T) {
				a := w.underWay(t)
				if !accepted[a.GetName()] {
					t.Skip("nobody has accepted it")
				}
				if a.kind == v1alpha1.KindTerminate {
					w.node = nil
				} else if w.node != nil {
					w.boots()
				}
				w.says(a, actionNamesOf(a.kind).final, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
			},
			"fail": func(t *rapid.T) {
				a := w.underWay(t)
				reason := rapid.SampledFrom([]string{v1alpha1.ReasonFailed, v1alpha1.ReasonTimeout}).Draw(t, "reason")
				w.says(a, actionNamesOf(a.kind).final, metav1.ConditionFalse, reason)
			},
			"delete": func(t *rapid.T) {
				a := w.underWay(t)
				if !slices.Contains(w.told(), actionNamesOf(a.kind).requested+" "+actionNamesOf(a.kind).resource+"/"+a.GetName()) {
					t.Skip("its making is not stored: nobody can know that it was there")
				}
				if err := w.client.Delete(t.Context(), a.Object); err != nil {
					t.Fatal(err)
				}
				deleted, asked = true, len(w.created)
			},
			"time": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "minutes")) * time.Minute)
			},
			"heal":  func(*rapid.T) { w.stored.HealthySince = &metav1.Time{Time: w.now} },
			"ail":   func(*rapid.T) { w.stored.HealthySince = nil },
			"leave": func(*rapid.T) { w.node = nil },
			"": func(t *rapid.T) {
				w.wantSound(t)
				if deleted && len(w.created) > asked {
					t.Fatalf("somebody took it back, and it was asked for again: %v", w.created)
				}
			},
		})
		w.lose = func() bool { return false }
		w.settle()
		w.wantTold(t, accepted)
	})
}

// underWay returns an object that has not ended.
func (w *fixture) underWay(t *rapid.T) *action {
	for _, kind := range []string{v1alpha1.KindReboot, v1alpha1.KindTerminate} {
		all, err := w.r.actions.listAllOfKind(context.Background(), kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if done, _, _ := a.endState(); !done {
				return a
			}
		}
	}
	t.Skip("nothing is under way")
	return nil
}

func (w *fixture) wantSound(t *rapid.T) {
	open := 0
	for _, kind := range []string{v1alpha1.KindReboot, v1alpha1.KindTerminate} {
		all, err := w.r.actions.listAllOfKind(context.Background(), kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if done, _, _ := a.endState(); !done {
				open++
			}
		}
	}
	if open > 1 {
		t.Fatalf("%d remedies are under way at a time: %v", open, w.created)
	}
	count := map[string]int{}
	for _, c := range w.created {
		kind, _, _ := strings.Cut(c, " ")
		count[kind]++
	}
	if count[v1alpha1.KindReboot] > 2 || count[v1alpha1.KindTerminate] > 1 {
		t.Fatalf("asked too often: %v", w.created)
	}
	seen := map[string]bool{}
	for _, h := range w.stored.History {
		if seen[h.ID] {
			t.Fatalf("told twice: %+v", h)
		}
		seen[h.ID] = true
	}
}

// wantTold verifies that all requests and results are recorded.
func (w *fixture) wantTold(t *rapid.T, accepted map[string]bool) {
	told := w.told()
	for _, c := range w.created {
		kind, name, _ := strings.Cut(c, " ")
		v := actionNamesOf(kind)
		if !slices.Contains(told, v.requested+" "+v.resource+"/"+name) {
			t.Fatalf("%s was made, and not told: %v", c, told)
		}
		executed := slices.Contains(told, v.executed+" "+v.resource+"/"+name)
		if executed && !accepted[name] {
			t.Fatalf("%s is told as done, and was not: %v", c, told)
		}
		asked := slices.Index(told, v.requested+" "+v.resource+"/"+name)
		for _, after := range []string{v.sent, v.executed, v.failed} {
			if at := slices.Index(told, after+" "+v.resource+"/"+name); at >= 0 && at < asked {
				t.Fatalf("%s is told before it was asked for: %v", c, told)
			}
		}
	}
	if n := nodefault.ProcessedByAllSinks(w.stored); n != w.stored.LastSequence {
		t.Fatalf("%d of %d", n, w.stored.LastSequence)
	}
}
