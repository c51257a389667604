package gardentest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// RunSuite runs the suite. It calls open for each test.
func RunSuite(t *testing.T, open func(t *testing.T) *Bed) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, bed *Bed)
	}{
		{"Create", testApplyCreatesShoot},
		{"AppliedAgain", testRepeatedApplyChangesNothing},
		{"OnlyNotedAgain", testNewGenerationAloneIsNoted},
		{"Update", testApplyUpdatesShoot},
		{"PoolRemoved", testPoolRemovedFromManifest},
		{"PoolRemovedThatOthersChanged", testRemovesPoolThatOthersChanged},
		{"OthersPool", testPoolsOfOthersRemoved},
		{"LabelRemoved", testLabelDifferenceCountsAsChange},
		{"OthersEdit", testEditOfOthersReverted},
		{"OthersFields", testUnsetFieldsOfOthersKept},
		{"VersionNeverLowered", testVersionNeverLowered},
		{"ImageNeverLowered", testImageNeverLowered},
		{"StaleGeneration", testStaleGenerationRejected},
		{"ForeignShoot", testForeignShootNeverTouched},
		{"GoneAndMadeAgain", testDeletedShootCreatedAgain},
		{"ManyAtOnce", testConcurrentAppliesKeepNewest},
		{"DeleteAbsent", testDeleteOfAbsentShootSucceeds},
		{"DeleteLingering", testRepeatedDeleteWhileLingering},
		{"ApplyWhileDeleting", testApplyWhileDeletingRejected},
		{"DeleteOtherUID", testDeleteIgnoresUID},
		{"Preflight", testPreflightStoresNothing},
		{"Invalid", testInvalidManifestsRejected},
		{"List", testListReturnsOwnShoots},
		{"Watch", testWatchReportsOwnChanges},
		{"WatchExpired", testWatchFromForgottenVersionExpires},
		{"WatchEndsWithItsHandler", testWatchReturnsHandlerError},
		{"ProbeAndProject", testProbeAndProject},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func (b *Bed) mustApplyShoot(t *testing.T, m shoot.Manifest, seenBefore bool) shoot.Applied {
	t.Helper()
	a, err := b.Garden.ApplyShoot(newTimeoutContext(t), m, seenBefore)
	if err != nil {
		t.Fatalf("apply %q: %v", m.Metadata.Name, err)
	}
	return a
}

func (b *Bed) mustGetShoot(t *testing.T, name string) shoot.Observed {
	t.Helper()
	o, err := b.Garden.GetShoot(newTimeoutContext(t), name)
	if err != nil {
		t.Fatalf("get %q: %v", name, err)
	}
	return o
}

func (b *Bed) mustDeleteShoot(t *testing.T, name string) shoot.Deletion {
	t.Helper()
	d, err := b.Garden.DeleteShoot(newTimeoutContext(t), newShootRef(name))
	if err != nil {
		t.Fatalf("delete %q: %v", name, err)
	}
	return d
}

// waitUntilShootGone waits until no Shoot has the name.
func (b *Bed) waitUntilShootGone(t *testing.T, name string) {
	t.Helper()
	ctx := newTimeoutContext(t)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := b.Garden.GetShoot(ctx, name)
		if errors.Is(err, shoot.ErrNotFound) {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("Shoot %q is still there: %v", name, err)
		}
	}
}

// wantErrorClass fails the test unless err is a shoot.Error of the class.
func wantErrorClass(t *testing.T, err error, want shoot.Class) {
	t.Helper()
	e, ok := errors.AsType[*shoot.Error](err)
	if !ok || e.Class != want {
		t.Fatalf("got %v (%s), want one of class %s", err, shoot.ClassOf(err), want)
	}
}

func wantWorkerPools(t *testing.T, s shoot.Spec, want ...string) {
	t.Helper()
	got := []string{}
	for _, w := range s.Provider.Workers {
		got = append(got, w.Name)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pools: %s (-want +got)", diff)
	}
}

// newTimeoutContext returns the test's context with a timeout.
func newTimeoutContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func testPreflightStoresNothing(t *testing.T, bed *Bed) {
	t.Helper()
	if err := bed.Garden.DryRunShoot(newTimeoutContext(t), NewManifest("a", 1)); err != nil {
		t.Errorf("a good Shoot: %v", err)
	}
	if _, err := bed.Garden.GetShoot(newTimeoutContext(t), "a"); !errors.Is(err, shoot.ErrNotFound) {
		t.Errorf("it was stored: %v", err)
	}
	unknown := NewManifest("a", 1)
	unknown.Spec.Kubernetes.Version = "9.99"
	wantErrorClass(t, bed.Garden.DryRunShoot(newTimeoutContext(t), unknown), shoot.ClassInvalid)
	bad := NewManifest("a", 1)
	bad.Spec.Provider.Workers[0].Minimum = 5
	wantErrorClass(t, bed.Garden.DryRunShoot(newTimeoutContext(t), bad), shoot.ClassInvalid)

	bed.mustApplyShoot(t, NewManifest("a", 1), false)
	was := bed.mustGetShoot(t, "a")
	wantErrorClass(t, bed.Garden.DryRunShoot(newTimeoutContext(t), bad), shoot.ClassInvalid)
	good := NewManifest("a", 2)
	good.Spec.Provider.Workers[0].Maximum = 9
	if err := bed.Garden.DryRunShoot(newTimeoutContext(t), good); err != nil {
		t.Errorf("a good change: %v", err)
	}
	if diff := cmp.Diff(was, bed.mustGetShoot(t, "a")); diff != "" {
		t.Errorf("it was stored: %s (-before +after)", diff)
	}
}

func testInvalidManifestsRejected(t *testing.T, bed *Bed) {
	t.Helper()
	long := strings.Repeat("x", 22-len(bed.Project))
	tests := map[string]struct {
		reason string
		name   string
		edit   func(*shoot.Spec)
		says   string
	}{
		"NameTooLong":      {reason: "with the project's name it has more than 21 characters", name: long, edit: func(*shoot.Spec) {}, says: "21"},
		"MaximumBelow":     {reason: "maximum below minimum", edit: func(s *shoot.Spec) { s.Provider.Workers[0].Minimum = 5 }, says: "minimum value"},
		"WorkerNameLong":   {reason: "more than 15 characters", edit: func(s *shoot.Spec) { s.Provider.Workers[0].Name = "a-name-that-is-long" }, says: "15"},
		"SameWorkerTwice":  {reason: "two pools of one name", edit: func(s *shoot.Spec) { s.Provider.Workers = append(s.Provider.Workers, NewWorker("default")) }, says: "uplicate"},
		"NoSuchVersion":    {reason: "Gardener answers 403", edit: func(s *shoot.Spec) { s.Kubernetes.Version = "1.99.0" }, says: "1.99.0"},
		"NoSuchMinor":      {reason: "no version of the cloud profile is of it", edit: func(s *shoot.Spec) { s.Kubernetes.Version = "9.99" }, says: "9.99"},
		"NoSuchMachine":    {reason: "Gardener answers 403", edit: func(s *shoot.Spec) { s.Provider.Workers[0].Machine.Type = "huge" }, says: "huge"},
		"NoMachinesAtAll":  {reason: "a Shoot with pools needs machines", edit: func(s *shoot.Spec) { w := &s.Provider.Workers[0]; w.Minimum, w.Maximum = 0, 0 }, says: "worker"},
		"NoRegion":         {reason: "a required field", edit: func(s *shoot.Spec) { s.Region = "" }, says: "region"},
		"TwoHyphensInName": {reason: "namespaces are made of it", name: "a--b", edit: func(*shoot.Spec) {}, says: "hyphens"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := NewManifest("bad", 1)
			if test.name != "" {
				m.Metadata.Name = test.name
			}
			test.edit(&m.Spec)
			_, err := bed.Garden.ApplyShoot(newTimeoutContext(t), m, false)
			wantErrorClass(t, err, shoot.ClassInvalid)
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: got %q, want it to say %q", test.reason, err, test.says)
			}
			_, err = bed.Garden.GetShoot(newTimeoutContext(t), m.Metadata.Name)
			if !errors.Is(err, shoot.ErrNotFound) {
				t.Errorf("it was stored: %v", err)
			}
		})
	}
	t.Run("Changes", func(t *testing.T) { testInvalidChangesRejected(t, bed) })
}

// testInvalidChangesRejected tests invalid changes of an existing Shoot.
func testInvalidChangesRejected(t *testing.T, bed *Bed) {
	t.Helper()
	bed.mustApplyShoot(t, NewManifest("a", 1), false)
	for reason, edit := range map[string]func(*shoot.Spec){
		"no workers any more": func(s *shoot.Spec) { s.Provider.Workers = nil },
		"another network":     func(s *shoot.Spec) { s.Networking.Type = "cilium" },
		"another region":      func(s *shoot.Spec) { s.Region = "moon" },
		"no such version":     func(s *shoot.Spec) { s.Kubernetes.Version = "9.99" },
	} {
		m := NewManifest("a", 2)
		edit(&m.Spec)
		if _, err := bed.Garden.ApplyShoot(newTimeoutContext(t), m, true); shoot.ClassOf(err) != shoot.ClassInvalid {
			t.Errorf("%s: got %v (%s)", reason, err, shoot.ClassOf(err))
		}
	}
	if got := bed.mustGetShoot(t, "a"); got.Generation != 1 || got.SentGeneration != 1 {
		t.Errorf("after changes that were refused the Shoot is at generation %d, by ours %d", got.Generation, got.SentGeneration)
	}
}

func testProbeAndProject(t *testing.T, bed *Bed) {
	t.Helper()
	if err := bed.Garden.Probe(newTimeoutContext(t)); err != nil {
		t.Errorf("probe: %v", err)
	}
	if got, err := bed.Garden.FindProjectName(newTimeoutContext(t)); err != nil || got != bed.Project {
		t.Errorf("the project is %q, %v, want %q", got, err, bed.Project)
	}
}
