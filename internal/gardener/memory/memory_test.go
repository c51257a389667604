package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/gardener/memory"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const installation = "4be0643f-1d98-473b-97cd-ca98a65347dd"

func manifest(name string, generation int64) shoot.Manifest {
	return shoot.Manifest{
		APIVersion: shoot.APIVersion, Kind: shoot.Kind,
		Metadata: shoot.Metadata{
			Name:        name,
			Labels:      map[string]string{shoot.LabelCluster: "cluster-of-" + name, shoot.LabelInstallation: installation},
			Annotations: map[string]string{shoot.AnnotationGeneration: strconv.FormatInt(generation, 10)},
		},
		Spec: shoot.Spec{
			CloudProfile: shoot.CloudProfile{Name: "local"}, Region: "local",
			Kubernetes: shoot.Kubernetes{Version: "1.34.2"},
			Provider: shoot.Provider{Type: "local", Workers: []shoot.Worker{
				{Name: "default", Machine: shoot.Machine{Type: "small"}, Minimum: 1, Maximum: 3},
			}},
		},
	}
}

func ref(name string) shoot.Ref {
	return shoot.Ref{Name: name, Cluster: "cluster-of-" + name, Installation: installation}
}

func apply(t *testing.T, g *memory.Garden, m shoot.Manifest) shoot.Applied {
	t.Helper()
	a, err := g.ApplyShoot(t.Context(), m, false)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return a
}

func get(t *testing.T, g *memory.Garden, name string) shoot.Observed {
	t.Helper()
	o, err := g.GetShoot(t.Context(), name)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return o
}

// told returns the operation of a Shoot in one line.
func told(o shoot.Observed) string {
	healthy := 0
	for _, c := range o.Conditions {
		if c.Status == "True" {
			healthy++
		}
	}
	return fmt.Sprintf("%s %s %d%% generation %d/%d, %d of %d conditions, %d errors",
		o.LastOperation.Type, o.LastOperation.State, o.LastOperation.Progress, o.ObservedGeneration, o.Generation, healthy, len(o.Conditions), len(o.LastErrors))
}

func TestAShootIsCreatedChangedAndDeletedOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memory.New(memory.Options{CreateTime: 11 * time.Minute, UpdateTime: 11 * time.Second, DeleteTime: 11 * time.Minute})
		apply(t, g, manifest("a", 1))
		at := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			if diff := cmp.Diff(want, told(get(t, g, "a"))); diff != "" {
				t.Errorf("%s (-want +got)", diff)
			}
		}
		at(0, "Create Pending 0% generation 0/1, 0 of 0 conditions, 0 errors")
		at(time.Minute, "Create Processing 0% generation 1/1, 0 of 5 conditions, 0 errors")
		at(5*time.Minute, "Create Processing 50% generation 1/1, 0 of 5 conditions, 0 errors")
		at(6*time.Minute, "Create Succeeded 100% generation 1/1, 0 of 5 conditions, 0 errors")
		at(time.Minute, "Create Succeeded 100% generation 1/1, 5 of 5 conditions, 0 errors")

		m := manifest("a", 2)
		m.Spec.Provider.Workers[0].Maximum = 7
		apply(t, g, m)
		at(0, "Reconcile Pending 0% generation 1/2, 5 of 5 conditions, 0 errors")
		at(12*time.Second, "Reconcile Succeeded 100% generation 2/2, 5 of 5 conditions, 0 errors")

		if _, err := g.DeleteShoot(t.Context(), ref("a")); err != nil {
			t.Fatal(err)
		}
		at(2*time.Minute, "Delete Processing 10% generation 3/3, 5 of 5 conditions, 0 errors")
		time.Sleep(10 * time.Minute)
		if _, err := g.GetShoot(t.Context(), "a"); !errors.Is(err, shoot.ErrNotFound) {
			t.Errorf("after the deletion: %v", err)
		}
	})
}

func TestAnOperationFailsAsOftenAsItIsToldTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memory.New(memory.Options{RetryTime: time.Minute, Breaks: func(name string) int { return map[string]int{"twice": 2, "ever": -1}[name] }})
		apply(t, g, manifest("twice", 1))
		apply(t, g, manifest("ever", 1))
		for range 2 {
			if got, want := told(get(t, g, "twice")), "Create Error 50% generation 1/1, 0 of 5 conditions, 1 errors"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			time.Sleep(time.Minute)
		}
		if got, want := told(get(t, g, "twice")), "Create Succeeded 100% generation 1/1, 5 of 5 conditions, 0 errors"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		time.Sleep(time.Hour)
		if got, want := told(get(t, g, "ever")), "Create Failed 50% generation 1/1, 0 of 5 conditions, 1 errors"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		g.FailNextOperations("ever", 0)
		m := manifest("ever", 2)
		m.Spec.Provider.Workers[0].Maximum = 4
		apply(t, g, m)
		if got, want := told(get(t, g, "ever")), "Create Succeeded 100% generation 2/2, 5 of 5 conditions, 0 errors"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestAWatchSeesEveryStepAndThenMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memory.New(memory.Options{Installation: installation, CreateTime: 11 * time.Second, BookmarkTime: time.Minute})
		list, err := g.ListShoots(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan error)
		go func() {
			done <- g.WatchShoots(ctx, list.ResourceVersion, func(e shoot.Event) error {
				if e.Type == shoot.Seen {
					got = append(got, e.Shoot.LastOperation.State+" "+strconv.Itoa(e.Shoot.LastOperation.Progress))
				} else {
					got = append(got, map[shoot.EventType]string{shoot.Gone: "gone", shoot.Mark: "mark"}[e.Type])
				}
				return nil
			})
		}()
		foreign := manifest("b", 1)
		foreign.Metadata.Labels = nil
		g.ReplaceWithForeignShoot(foreign)
		apply(t, g, manifest("a", 1))
		time.Sleep(2 * time.Minute)
		if _, err := g.DeleteShoot(t.Context(), ref("a")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
		want := []string{
			"Pending 0", "Processing 0", "Processing 10", "Processing 20", "Processing 30", "Processing 40", "Processing 50",
			"Processing 60", "Processing 70", "Processing 80", "Processing 90", "Processing 100", "Succeeded 100", "Succeeded 100", "mark", "gone",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)", diff)
		}
	})
}

func TestAWatchThatIsTooFarBehindHasToListAnew(t *testing.T) {
	g := memory.New(memory.Options{Backlog: 10})
	list, err := g.ListShoots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		apply(t, g, manifest("s"+strconv.Itoa(i), 1))
	}
	for name, version := range map[string]string{"old": list.ResourceVersion, "of another garden": "99999", "no version": "x"} {
		err := g.WatchShoots(t.Context(), version, func(shoot.Event) error { return nil })
		if !errors.Is(err, shoot.ErrExpired) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestOthersChangesDoNotMakeAWatchExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memory.New(memory.Options{Backlog: 10, Installation: "nobody"})
		list, err := g.ListShoots(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		marked := list.ResourceVersion
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- g.WatchShoots(ctx, marked, func(e shoot.Event) error { marked = e.Shoot.ResourceVersion; return nil })
		}()
		for i := range 40 {
			apply(t, g, manifest("s"+strconv.Itoa(i), 1))
			synctest.Wait()
		}
		cancel()
		<-done
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if err := g.WatchShoots(ctx, marked, func(shoot.Event) error { return nil }); errors.Is(err, shoot.ErrExpired) {
			t.Errorf("the last mark, %s, has expired", marked)
		}
	})
}

func TestFaultsAreThoseAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost")
		g := memory.New(memory.Options{
			Latency: 20 * time.Millisecond,
			Fail: func(_ context.Context, v memory.Verb, name string) error {
				if v == memory.Apply && name == "fails" {
					return shoot.NewClassErrorf(shoot.ClassInvalid, "no")
				}
				return nil
			},
			Lose: func(_ context.Context, _ memory.Verb, name string) error {
				if name == "lost" {
					return lost
				}
				return nil
			},
		})
		if _, err := g.ApplyShoot(t.Context(), manifest("fails", 1), false); shoot.ClassOf(err) != shoot.ClassInvalid {
			t.Errorf("got %v, want the error of Fail", err)
		}
		if _, err := g.ApplyShoot(t.Context(), manifest("lost", 1), false); !errors.Is(err, lost) {
			t.Errorf("got %v, want the error of Lose", err)
		}
		if diff := cmp.Diff([]string{"lost"}, g.ListShootNames()); diff != "" {
			t.Errorf("%s (-want +got)", diff)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := g.Probe(ctx); shoot.ClassOf(err) != shoot.ClassUnavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call that takes too long: got %v", err)
		}
		g.SetOutage(true)
		if err := g.Probe(t.Context()); shoot.ClassOf(err) != shoot.ClassUnavailable {
			t.Errorf("during an outage: got %v", err)
		}
		g.SetOutage(false)
		if err := g.Probe(t.Context()); err != nil {
			t.Errorf("after it: got %v", err)
		}
	})
}

func TestAnOutageEndsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memory.New(memory.Options{})
		done := make(chan error)
		go func() { done <- g.WatchShoots(t.Context(), "1", func(shoot.Event) error { return nil }) }()
		synctest.Wait()
		g.SetOutage(true)
		if err := <-done; shoot.ClassOf(err) != shoot.ClassUnavailable {
			t.Errorf("got %v", err)
		}
	})
}

func TestFailuresAtRandomCanBeRepeated(t *testing.T) {
	run := func(seed uint64) (failed []int) {
		g := memory.New(memory.Options{FailRate: 0.3, Seed: seed})
		for i := range 200 {
			if g.Probe(t.Context()) != nil {
				failed = append(failed, i)
			}
		}
		return failed
	}
	a, b, c := run(1), run(1), run(2)
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Errorf("seeds 1, 1 and 2 gave %v, %v and %v", a, b, c)
	}
	if len(a) < 30 || len(a) > 90 {
		t.Errorf("%d of 200 calls failed, want about 60", len(a))
	}
}

func TestOverlappingCallsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memory.New(memory.Options{Latency: time.Second, History: true})
		var calls sync.WaitGroup
		for i, name := range []string{"a", "b", "a"} {
			calls.Go(func() {
				time.Sleep(time.Duration(i))
				if _, err := g.ApplyShoot(t.Context(), manifest(name, int64(i+1)), true); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		got := g.CountCalls()
		want := memory.Counts{
			Calls: map[memory.Verb]int{memory.Apply: 3}, Failed: map[memory.Verb]int{},
			Created: 2, Unchanged: 1, Overlaps: 1, MaxInFlight: 2,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)", diff)
		}
		if diff := cmp.Diff([]int64{1, 3}, g.ListAppliedGenerations("a")); diff != "" {
			t.Errorf("%s (-want +got)", diff)
		}
	})
}

func TestAManifestStaysItsOwners(t *testing.T) {
	g := memory.New(memory.Options{})
	m := manifest("a", 1)
	apply(t, g, m)
	m.Spec.Provider.Workers[0].Maximum = 99
	m.Metadata.Labels[shoot.LabelCluster] = "another"
	spec, _ := g.GetShootSpec("a")
	if got := spec.Provider.Workers[0].Maximum; got != 3 {
		t.Errorf("the Shoot changed with the manifest: maximum %d", got)
	}
	if got := get(t, g, "a").Cluster; got != "cluster-of-a" {
		t.Errorf("the Shoot changed with the manifest: cluster %q", got)
	}
}

func BenchmarkApplyNew(b *testing.B) {
	g := memory.New(memory.Options{})
	m := manifest("a", 1)
	for i := range b.N {
		m.Metadata.Name = "s" + strconv.Itoa(i)
		if _, err := g.ApplyShoot(b.Context(), m, false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkApplyAgain(b *testing.B) {
	g := memory.New(memory.Options{CreateTime: time.Hour})
	m := manifest("a", 1)
	for b.Loop() {
		if _, err := g.ApplyShoot(b.Context(), m, true); err != nil {
			b.Fatal(err)
		}
	}
}
