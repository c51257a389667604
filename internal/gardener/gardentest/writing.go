package gardentest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

func testApplyCreatesShoot(t *testing.T, bed *Bed) {
	t.Helper()
	got := bed.mustApplyShoot(t, NewManifest("a", 7), false)
	if !got.Created || !got.Changed || got.UID == "" || got.Generation != 1 {
		t.Errorf("got %+v", got)
	}
	o := bed.mustGetShoot(t, "a")
	want := shoot.Observed{
		Name: "a", UID: got.UID, Cluster: clusterIDOf("a"), Installation: Installation, SentGeneration: 7, Generation: 1, Version: "1.34.2",
	}
	if o.Created.IsZero() || o.ResourceVersion == "" {
		t.Errorf("it has no time or no version: %+v", o)
	}
	o.Created, o.ResourceVersion = want.Created, ""
	o.ObservedGeneration, o.LastOperation, o.Conditions = 0, nil, nil // a garden may already have them
	if diff := cmp.Diff(want, o); diff != "" {
		t.Errorf("%s (-want +got)", diff)
	}
	wantWorkerPools(t, bed.Spec(t, "a"), "default")
}

func testRepeatedApplyChangesNothing(t *testing.T, bed *Bed) {
	t.Helper()
	first := bed.mustApplyShoot(t, NewManifest("a", 1), false)
	var was shoot.Observed
	for i, seen := range []bool{true, true, false} { // false is the case after a lost answer
		got := bed.mustApplyShoot(t, NewManifest("a", 1), seen)
		want := shoot.Applied{UID: first.UID, Generation: first.Generation, SentBefore: 1}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seen %t: %s (-want +got)", seen, diff)
		}
		if i == 0 { // Gardener may have added some of its labels only now
			was = bed.mustGetShoot(t, "a")
		}
	}
	if diff := cmp.Diff(was, bed.mustGetShoot(t, "a")); diff != "" {
		t.Errorf("it was written to: %s (-want +got)", diff)
	}
}

func testNewGenerationAloneIsNoted(t *testing.T, bed *Bed) {
	t.Helper()
	first := bed.mustApplyShoot(t, NewManifest("a", 1), false)
	got := bed.mustApplyShoot(t, NewManifest("a", 2), true)
	if diff := cmp.Diff(shoot.Applied{UID: first.UID, Generation: first.Generation, SentBefore: 1}, got); diff != "" {
		t.Errorf("only our own generation changed: %s (-want +got)", diff)
	}
	if got := bed.mustGetShoot(t, "a").SentGeneration; got != 2 {
		t.Errorf("generation %d is noted, want 2", got)
	}
}

func testApplyUpdatesShoot(t *testing.T, bed *Bed) {
	t.Helper()
	first := bed.mustApplyShoot(t, NewManifest("a", 1), false)
	m := NewManifest("a", 2)
	m.Spec.Kubernetes.Version = "1.34.3"
	m.Spec.Provider.Workers[0].Maximum = 9
	m.Spec.Provider.Workers = append(m.Spec.Provider.Workers, NewWorker("more"))
	got := bed.mustApplyShoot(t, m, true)
	if diff := cmp.Diff(shoot.Applied{UID: first.UID, Generation: 2, Changed: true, SentBefore: 1}, got); diff != "" {
		t.Errorf("%s (-want +got)", diff)
	}
	s := bed.Spec(t, "a")
	wantWorkerPools(t, s, "default", "more")
	if s.Kubernetes.Version != "1.34.3" || maximumOfDefaultPool(s) != 9 {
		t.Errorf("the change is not there: %+v", s)
	}
}

// maximumOfDefaultPool returns the maximum of the pool that every Shoot here has.
func maximumOfDefaultPool(s shoot.Spec) int32 {
	for _, w := range s.Provider.Workers {
		if w.Name == "default" {
			return w.Maximum
		}
	}
	return -1
}

func testPoolRemovedFromManifest(t *testing.T, bed *Bed) {
	t.Helper()
	m := NewManifest("a", 1)
	m.Spec.Provider.Workers = append(m.Spec.Provider.Workers, NewWorker("more"))
	bed.mustApplyShoot(t, m, false)
	m = NewManifest("a", 2)
	m.Spec.Provider.Workers = []shoot.Worker{NewWorker("other")}
	bed.mustApplyShoot(t, m, true)
	wantWorkerPools(t, bed.Spec(t, "a"), "other")
}

// testPoolsOfOthersRemoved tests that pools of other clients are removed, even when added again,
// and all at once.
func testPoolsOfOthersRemoved(t *testing.T, bed *Bed) {
	t.Helper()
	bed.mustApplyShoot(t, NewManifest("a", 1), false)
	bed.Edit(t, "a", func(s *shoot.Spec) {
		s.Provider.Workers = append(s.Provider.Workers, NewWorker("more"), NewWorker("most"))
	})
	m := NewManifest("a", 2)
	m.Spec.Provider.Workers = []shoot.Worker{NewWorker("other"), NewWorker("most")}
	if err := bed.Garden.DryRunShoot(newTimeoutContext(t), m); err != nil {
		t.Errorf("preflight: %v", err)
	}
	if got := bed.mustApplyShoot(t, m, true); !got.Changed {
		t.Errorf("got %+v, want a change", got)
	}
	wantWorkerPools(t, bed.Spec(t, "a"), "most", "other")

	m = NewManifest("a", 3) // without a pool of another client that the apply took over
	bed.mustApplyShoot(t, m, true)
	wantWorkerPools(t, bed.Spec(t, "a"), "default")
	if got := bed.mustApplyShoot(t, m, true); got.Changed {
		t.Errorf("applied again: %+v", got)
	}
}

// testRemovesPoolThatOthersChanged covers that Gardener itself writes to pools, when it
// raises the version of an image.
func testRemovesPoolThatOthersChanged(t *testing.T, bed *Bed) {
	t.Helper()
	m := NewManifest("a", 1)
	m.Spec.Provider.Workers = append(m.Spec.Provider.Workers, NewWorker("more"), NewWorker("most"))
	for i := range m.Spec.Provider.Workers {
		m.Spec.Provider.Workers[i].Machine.Image = &shoot.Image{Name: "local", Version: "1.0.0"}
	}
	bed.mustApplyShoot(t, m, false)
	bed.Edit(t, "a", func(s *shoot.Spec) {
		for i := range s.Provider.Workers {
			s.Provider.Workers[i].Machine.Image.Version = "1.1.0"
		}
	})
	m = NewManifest("a", 2)
	m.Spec.Provider.Workers = []shoot.Worker{NewWorker("default"), NewWorker("other")}
	if err := bed.Garden.DryRunShoot(newTimeoutContext(t), m); err != nil {
		t.Errorf("preflight: %v", err)
	}
	bed.mustApplyShoot(t, m, true)
	wantWorkerPools(t, bed.Spec(t, "a"), "default", "other")

	m = NewManifest("a", 3)
	m.Spec.Provider.Workers = []shoot.Worker{NewWorker("last")}
	got := bed.mustApplyShoot(t, m, true)
	wantWorkerPools(t, bed.Spec(t, "a"), "last")
	if o := bed.mustGetShoot(t, "a"); !got.Changed || got.Generation != o.Generation || o.SentGeneration != 3 {
		t.Errorf("applied %+v, but it is at generation %d, by ours %d", got, o.Generation, o.SentGeneration)
	}
	if again := bed.mustApplyShoot(t, m, true); again.Changed {
		t.Error("applied again, it changed again")
	}
}

func testLabelDifferenceCountsAsChange(t *testing.T, bed *Bed) {
	t.Helper()
	m := NewManifest("a", 1)
	m.Metadata.Labels["team"] = "blue"
	bed.mustApplyShoot(t, m, false)
	if got := bed.mustApplyShoot(t, NewManifest("a", 1), true); !got.Changed || got.Generation != 1 {
		t.Errorf("without a label that it had: %+v", got)
	}
	if got := bed.mustApplyShoot(t, m, true); !got.Changed || got.Generation != 1 {
		t.Errorf("with it again: %+v", got)
	}
	if got := bed.mustApplyShoot(t, m, true); got.Changed {
		t.Errorf("with it still: %+v", got)
	}
}

func testEditOfOthersReverted(t *testing.T, bed *Bed) {
	t.Helper()
	bed.mustApplyShoot(t, NewManifest("a", 1), false)
	bed.Edit(t, "a", func(s *shoot.Spec) { s.Provider.Workers[0].Maximum = 50 })
	got := bed.mustApplyShoot(t, NewManifest("a", 1), true)
	if !got.Changed || got.Generation != 3 {
		t.Errorf("got %+v, want a change and generation 3", got)
	}
	if got := maximumOfDefaultPool(bed.Spec(t, "a")); got != 3 {
		t.Errorf("the maximum is %d, want ours, 3", got)
	}
}

func testUnsetFieldsOfOthersKept(t *testing.T, bed *Bed) {
	t.Helper()
	bed.mustApplyShoot(t, NewManifest("a", 1), false)
	bed.Edit(t, "a", func(s *shoot.Spec) {
		s.Provider.Workers[0].Machine.Image = &shoot.Image{Name: "local", Version: "1.1.0"}
	})
	m := NewManifest("a", 2)
	m.Spec.Provider.Workers[0].Maximum = 4
	bed.mustApplyShoot(t, m, true)
	s := bed.Spec(t, "a")
	if i := s.Provider.Workers[0].Machine.Image; i == nil || i.Version != "1.1.0" {
		t.Errorf("the image that somebody else chose is now %+v", i)
	}
	if got := maximumOfDefaultPool(s); got != 4 {
		t.Errorf("the maximum is %d, want 4", got)
	}
}

func testVersionNeverLowered(t *testing.T, bed *Bed) {
	t.Helper()
	bed.mustApplyShoot(t, NewManifest("a", 1), false)
	bed.Edit(t, "a", func(s *shoot.Spec) { s.Kubernetes.Version = "1.34.3" })
	for i, version := range []string{"1.34.2", "1.34", ""} {
		m := NewManifest("a", int64(i)+2)
		m.Spec.Kubernetes.Version = version
		bed.mustApplyShoot(t, m, true)
		if got := bed.mustGetShoot(t, "a").Version; got != "1.34.3" {
			t.Errorf("with %q asked for it is %q, want 1.34.3", version, got)
		}
	}
}

func testImageNeverLowered(t *testing.T, bed *Bed) {
	t.Helper()
	m := NewManifest("a", 1)
	m.Spec.Provider.Workers[0].Machine.Image = &shoot.Image{Name: "local", Version: "1.0.0"}
	bed.mustApplyShoot(t, m, false)
	bed.Edit(t, "a", func(s *shoot.Spec) { s.Provider.Workers[0].Machine.Image.Version = "1.1.0" })
	m.Spec.Provider.Workers[0].Maximum = 4
	bed.mustApplyShoot(t, m, true)
	if got := bed.Spec(t, "a").Provider.Workers[0].Machine.Image.Version; got != "1.1.0" {
		t.Errorf("the image is %s, want 1.1.0", got)
	}
}

func testStaleGenerationRejected(t *testing.T, bed *Bed) {
	t.Helper()
	bed.mustApplyShoot(t, NewManifest("a", 5), false)
	for _, seen := range []bool{true, false} {
		m := NewManifest("a", 4)
		m.Spec.Provider.Workers[0].Maximum = 9
		_, err := bed.Garden.ApplyShoot(newTimeoutContext(t), m, seen)
		wantErrorClass(t, err, shoot.ClassConflict)
	}
	if got := bed.mustGetShoot(t, "a"); got.SentGeneration != 5 || got.Generation != 1 {
		t.Errorf("it was written to: generation %d, by ours %d", got.Generation, got.SentGeneration)
	}
}

func testForeignShootNeverTouched(t *testing.T, bed *Bed) {
	t.Helper()
	nobodys := NewManifest("nobodys", 1)
	nobodys.Metadata.Labels, nobodys.Metadata.Annotations = nil, nil
	another := NewManifest("another", 1)
	another.Metadata.Labels[shoot.LabelCluster] = "another"
	elsewhere := NewManifest("elsewhere", 1)
	elsewhere.Metadata.Labels[shoot.LabelInstallation] = "8c0cb5b5-98ac-4fa3-a4a5-3fc3b3a52ea3"
	for _, foreign := range []shoot.Manifest{nobodys, another, elsewhere} {
		name := foreign.Metadata.Name
		bed.Put(t, foreign)
		was := bed.mustGetShoot(t, name)
		for _, seen := range []bool{true, false} {
			_, err := bed.Garden.ApplyShoot(newTimeoutContext(t), NewManifest(name, 9), seen) // even with the same spec
			wantErrorClass(t, err, shoot.ClassForeign)
		}
		_, err := bed.Garden.DeleteShoot(newTimeoutContext(t), newShootRef(name))
		wantErrorClass(t, err, shoot.ClassForeign)
		wantErrorClass(t, bed.Garden.DryRunShoot(newTimeoutContext(t), NewManifest(name, 9)), shoot.ClassForeign)
		if diff := cmp.Diff(was, bed.mustGetShoot(t, name)); diff != "" {
			t.Errorf("%s was written to: %s (-before +after)", name, diff)
		}
	}
}

func testDeletedShootCreatedAgain(t *testing.T, bed *Bed) {
	t.Helper()
	first := bed.mustApplyShoot(t, NewManifest("a", 1), false)
	bed.mustDeleteShoot(t, "a")
	bed.waitUntilShootGone(t, "a")
	got := bed.mustApplyShoot(t, NewManifest("a", 1), true)
	if !got.Created || got.UID == first.UID {
		t.Errorf("got %+v, want another Shoot than %s", got, first.UID)
	}
}

// testConcurrentAppliesKeepNewest tests that the newest generation remains, in any order of arrival.
func testConcurrentAppliesKeepNewest(t *testing.T, bed *Bed) {
	t.Helper()
	const most = 12
	var calls sync.WaitGroup
	var mu sync.Mutex
	created, newest := 0, int64(0)
	for i := range int64(most) {
		calls.Go(func() {
			m := NewManifest("a", i+1)
			m.Spec.Provider.Workers[0].Maximum = int32(i) + 10 //nolint:gosec // small
			a, err := bed.Garden.ApplyShoot(newTimeoutContext(t), m, i%2 == 0)
			if err != nil && shoot.ClassOf(err) != shoot.ClassConflict {
				t.Errorf("generation %d: %v", i+1, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				newest = max(newest, i+1)
			}
			if a.Created {
				created++
			}
		})
	}
	calls.Wait()
	if created != 1 {
		t.Errorf("it was created %d times", created)
	}
	if got := bed.mustGetShoot(t, "a").SentGeneration; got != newest {
		t.Errorf("it is at generation %d, but %d was taken", got, newest)
	}
	if got, want := maximumOfDefaultPool(bed.Spec(t, "a")), int32(newest)+9; got != want {
		t.Errorf("the maximum is %d, want %d, that of the newest", got, want)
	}
}

func testDeleteOfAbsentShootSucceeds(t *testing.T, bed *Bed) {
	t.Helper()
	if got := bed.mustDeleteShoot(t, "a"); !got.Absent {
		t.Errorf("got %+v, want it absent", got)
	}
}

func testRepeatedDeleteWhileLingering(t *testing.T, bed *Bed) {
	t.Helper()
	uid := bed.mustApplyShoot(t, NewManifest("a", 1), false).UID
	bed.Linger(t, "a", true)
	for range 3 {
		if got, want := bed.mustDeleteShoot(t, "a"), (shoot.Deletion{UID: uid}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if !bed.mustGetShoot(t, "a").Deleting {
			t.Error("it is not being deleted")
		}
	}
	bed.Linger(t, "a", false)
	bed.waitUntilShootGone(t, "a")
	if got := bed.mustDeleteShoot(t, "a"); !got.Absent {
		t.Errorf("got %+v, want it absent", got)
	}
}

func testApplyWhileDeletingRejected(t *testing.T, bed *Bed) {
	t.Helper()
	bed.mustApplyShoot(t, NewManifest("a", 1), false)
	bed.Linger(t, "a", true)
	bed.mustDeleteShoot(t, "a")
	for _, seen := range []bool{true, false} {
		_, err := bed.Garden.ApplyShoot(newTimeoutContext(t), NewManifest("a", 2), seen)
		wantErrorClass(t, err, shoot.ClassConflict)
	}
	bed.Linger(t, "a", false)
	bed.waitUntilShootGone(t, "a")
	if got := bed.mustApplyShoot(t, NewManifest("a", 2), true); !got.Created {
		t.Errorf("got %+v, want it made again", got)
	}
}

// testDeleteIgnoresUID covers a Shoot that was created again without the caller's
// knowledge.
func testDeleteIgnoresUID(t *testing.T, bed *Bed) {
	t.Helper()
	bed.mustApplyShoot(t, NewManifest("a", 1), false)
	r := newShootRef("a")
	r.UID = "8c0cb5b5-98ac-4fa3-a4a5-3fc3b3a52ea3"
	if _, err := bed.Garden.DeleteShoot(newTimeoutContext(t), r); err != nil {
		t.Fatal(err)
	}
	bed.waitUntilShootGone(t, "a")
}

func testListReturnsOwnShoots(t *testing.T, bed *Bed) {
	t.Helper()
	l, err := bed.Garden.ListShoots(newTimeoutContext(t))
	if err != nil || len(l.Shoots) != 0 || l.ResourceVersion == "" {
		t.Fatalf("an empty garden lists %+v, %v", l, err)
	}
	want := []string{}
	for i := range 12 {
		name := fmt.Sprintf("s%02d", i)
		bed.mustApplyShoot(t, NewManifest(name, 1), false)
		want = append(want, name)
	}
	foreign := NewManifest("foreign", 1)
	foreign.Metadata.Labels = nil
	bed.Put(t, foreign)
	l, err = bed.Garden.ListShoots(newTimeoutContext(t))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, o := range l.Shoots {
		got = append(got, o.Name)
		if diff := cmp.Diff(bed.mustGetShoot(t, o.Name), o); diff != "" {
			t.Errorf("%s is listed otherwise than it is: %s (-is +listed)", o.Name, diff)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got)", diff)
	}
	if _, err := bed.Garden.GetShoot(newTimeoutContext(t), "none"); !errors.Is(err, shoot.ErrNotFound) {
		t.Errorf("a Shoot that is not there: %v", err)
	}
}
