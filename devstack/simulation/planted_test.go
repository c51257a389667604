package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/devstack/simulation"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

type honest = func(context.Context, *cloudevent.Event) error

// TestCheckerObjects plants a fault in a world that keeps every promise
// without it, and sees the checker object.
func TestCheckerObjects(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		edit    func(*simulation.World)
		planted func() simulation.Planted
		promise func(*simulation.Promise)
		want    string
	}{
		"ConfirmedAndNotStored": {
			reason: "a publisher says nil, and the broker never saw the event",
			planted: func() simulation.Planted {
				return simulation.Planted{Publish: func(ctx context.Context, e *cloudevent.Event, publish honest) error {
					if e.ID < "evt-4" {
						return nil
					}
					return publish(ctx, e)
				}}
			},
			want: "is not published by",
		},
		"LaterBeforeEarlier": {
			reason: "a feed shows a later change before an earlier one, whose cursor is then behind",
			edit: func(w *simulation.World) {
				w.Config.Source = sentinel.Sources{Mode: sentinel.ModeWatch, FullSweepInterval: 10 * time.Minute}
			},
			planted: func() simulation.Planted { return simulation.Planted{Late: 200 * time.Millisecond} },
			want:    "is not published by",
		},
		"PageSkipsForEver": {
			reason:  "a resource is on no page",
			edit:    func(w *simulation.World) { w.Features = simulation.Features{Keyset: true, Most: 10} },
			planted: func() simulation.Planted { return simulation.Planted{Skip: 3} },
			want:    "is not published by",
		},
		"OtherIDOnResend": {
			reason: "what is sent again after a crash has another id",
			edit: func(w *simulation.World) {
				w.Ends = []simulation.End{{After: time.Minute, Crash: true}, {After: 61 * time.Second, Crash: true}}
				w.Never = 10
			},
			planted: func() simulation.Planted {
				var sent atomic.Int64
				return simulation.Planted{Publish: func(ctx context.Context, e *cloudevent.Event, publish honest) error {
					e.ID += fmt.Sprint("-", sent.Add(1))
					return publish(ctx, e)
				}}
			},
			want: "has said",
		},
		"OneIDForAll": {
			reason: "every event of a resource has the same id",
			planted: func() simulation.Planted {
				return simulation.Planted{Publish: func(ctx context.Context, e *cloudevent.Event, publish honest) error {
					e.ID = "evt-" + e.Subject
					return publish(ctx, e)
				}}
			},
			want: "names two nudges",
		},
		"ForgottenByTheSuccessor": {
			reason: "the configuration changes, and what was announced is announced again",
			edit: func(w *simulation.World) {
				same := w.Config
				w.Ends = []simulation.End{{After: 61 * time.Second, Change: &same}, {After: 83 * time.Second, Change: &same}}
				w.Never = 10
			},
			planted: func() simulation.Planted { return simulation.Planted{Forgets: true} },
			want:    "are about generation",
		},
		"DeafToDivisions": {
			reason: "a sentinel is lost, and nobody looks for what it had",
			edit: func(w *simulation.World) {
				w.Config.Source = sentinel.Sources{Mode: sentinel.ModeWatch, FullSweepInterval: time.Hour}
				w.Others = [][]simulation.End{{{After: 61 * time.Second, Crash: true, Down: time.Hour}}}
				w.Never, w.Active = 10, 3*time.Minute
				// No change is heard of that would bring one of them back.
				w.Steps = slices.DeleteFunc(w.Steps, func(s simulation.Step) bool { return s.Deed != simulation.Create })
			},
			planted: func() simulation.Planted { return simulation.Planted{Deaf: true} },
			want:    "nothing said of it",
		},
		"SaidTwice": {
			reason: "an event is stored twice, though the first was confirmed",
			planted: func() simulation.Planted {
				return simulation.Planted{Publish: func(ctx context.Context, e *cloudevent.Event, publish honest) error {
					return errors.Join(publish(ctx, e), publish(ctx, e))
				}}
			},
			want: "are about generation",
		},
		"OneStarves": {
			reason: "the events of one resource are never accepted",
			edit:   func(w *simulation.World) { w.Never = 10 },
			planted: func() simulation.Planted {
				return simulation.Planted{Publish: func(ctx context.Context, e *cloudevent.Event, publish honest) error {
					if e.Subject < "3" {
						return errors.New("not this one")
					}
					return publish(ctx, e)
				}}
			},
			want: "is not published by",
		},
		"AgedAndForgotten": {
			reason: "no event but those of a changed generation goes out",
			planted: func() simulation.Planted {
				return simulation.Planted{Publish: func(ctx context.Context, e *cloudevent.Event, publish honest) error {
					if strings.Contains(string(e.Data), "max age") {
						return nil
					}
					return publish(ctx, e)
				}}
			},
			want: "nothing said of it",
		},
		"AboutAnother": {
			reason: "events name a resource that they are not about",
			planted: func() simulation.Planted {
				return simulation.Planted{Publish: func(ctx context.Context, e *cloudevent.Event, publish honest) error {
					e.Subject = strings.Repeat("0", len(e.Subject))
					return publish(ctx, e)
				}}
			},
			want: "gone, not selected, or never so",
		},
		"TooSoon": {
			reason:  "a resource is announced before its age",
			planted: func() simulation.Planted { return simulation.Planted{} },
			promise: func(p *simulation.Promise) { p.Ready *= 2 },
			want:    "was not due",
		},
		"SlowStop": {
			reason:  "the sentinel does not end in time",
			edit:    func(w *simulation.World) { w.Ends = []simulation.End{{After: 30 * time.Second}} },
			planted: func() simulation.Planted { return simulation.Planted{Linger: 10 * time.Second} },
			want:    "to stop",
		},
		"WindowExceeded": {
			reason: "more events are in flight than the window holds",
			edit:   func(w *simulation.World) { w.Config.Publish.Window = 4 },
			planted: func() simulation.Planted {
				return simulation.Planted{Publish: func(ctx context.Context, e *cloudevent.Event, publish honest) error {
					done := make(chan error, 1)
					go func() { done <- publish(ctx, e) }()
					return errors.Join(publish(ctx, e), <-done)
				}}
			},
			want: "with a window of",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := calm()
			if tc.edit != nil {
				tc.edit(&w)
			}
			if h, breaches := play(t, w, simulation.Planted{}, nil); len(breaches) > 0 {
				t.Fatalf("%s, but without that:\n%s", tc.reason, simulation.Report(w, h, breaches))
			}
			_, breaches := play(t, w, tc.planted(), tc.promise)
			for _, b := range breaches {
				if strings.Contains(b.What, tc.want) {
					return
				}
			}
			t.Errorf("%s: no breach says %q:\n%v", tc.reason, tc.want, breaches)
		})
	}
}

// calm returns a world without faults, with every feature and enough room in the window.
func calm() simulation.World {
	w := simulation.NewWorld(5)
	w.Features = simulation.Features{Keyset: true, ETag: true, Cursor: true, Watch: true, Most: 500}
	w.Config.Publish.Window = 64
	w.Config.Jitter = 0
	w.Never, w.Late = 2, 2
	return w
}

// TestWorldsDiffer: the seeds reach every mode, kind of fault and end.
func TestWorldsDiffer(t *testing.T) {
	t.Parallel()
	kinds, modes, levels := map[simulation.Kind]int{}, map[sentinel.Mode]int{}, map[simulation.Features]int{}
	calms, crashes, stops, changes, jumps, shuffles := 0, 0, 0, 0, 0, 0
	members := map[int]int{}
	for seed := range uint64(seeds) {
		w := simulation.NewWorld(seed)
		for _, f := range w.Faults {
			kinds[f.Kind]++
		}
		for _, e := range w.Ends {
			switch {
			case e.Change != nil:
				changes++
			case e.Crash:
				crashes++
			default:
				stops++
			}
		}
		jumps += len(w.Clock)
		shuffles += len(w.Shuffles)
		members[1+len(w.Others)]++
		modes[w.Config.Source.Mode]++
		features := w.Features
		features.Most = 0
		levels[features]++
		if w.Calm() {
			calms++
		}
	}
	t.Logf("%d worlds: %d calm, %d crashes, %d stops, %d changes, %d jumps of the clock, %d shuffles, faults %v, modes %v, features %v, sentinels %v",
		seeds, calms, crashes, stops, changes, jumps, shuffles, kinds, modes, levels, members)
	if len(kinds) != int(simulation.NumKinds) || len(modes) != 5 || len(levels) != 5 || len(members) != 3 ||
		min(calms, crashes, stops, changes, jumps, shuffles) == 0 {
		t.Error("something never happens")
	}
}

// TestSameSeedSameWorld: what a seed decides, it decides for ever.
func TestSameSeedSameWorld(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		if a, b := fmt.Sprintf("%+v", simulation.NewWorld(seed)), fmt.Sprintf("%+v", simulation.NewWorld(seed)); a != b {
			t.Errorf("seed %d: two worlds:\n%s\n%s", seed, a, b)
		}
	}
}
