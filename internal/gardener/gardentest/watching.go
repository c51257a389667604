package gardentest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

var errEnough = errors.New("enough")

// A view is the state of a watcher.
type view struct {
	shoots  map[string]shoot.Observed
	version string
	gone    []string
}

func (v *view) applyEvent(e shoot.Event) {
	v.version = e.Shoot.ResourceVersion
	switch e.Type {
	case shoot.Seen:
		v.shoots[e.Shoot.Name] = e.Shoot
	case shoot.Gone:
		delete(v.shoots, e.Shoot.Name)
		v.gone = append(v.gone, e.Shoot.Name)
	case shoot.Mark:
	}
}

// watchUntil watches from the version of the view until enough returns true.
func (v *view) watchUntil(t *testing.T, bed *Bed, enough func() bool) {
	t.Helper()
	err := bed.Garden.WatchShoots(newTimeoutContext(t), v.version, func(e shoot.Event) error {
		v.applyEvent(e)
		if enough() {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("the watch ended with %v, and knows of %d Shoots", err, len(v.shoots))
	}
}

func testWatchReportsOwnChanges(t *testing.T, bed *Bed) {
	t.Helper()
	bed.mustApplyShoot(t, NewManifest("before", 1), false)
	l, err := bed.Garden.ListShoots(newTimeoutContext(t))
	if err != nil {
		t.Fatal(err)
	}
	v := &view{shoots: map[string]shoot.Observed{}, version: l.ResourceVersion}

	made := make(chan error, 1)
	ctx := newTimeoutContext(t)
	go func() {
		for i := range 10 {
			if _, err := bed.Garden.ApplyShoot(ctx, NewManifest(fmt.Sprintf("s%02d", i), 1), false); err != nil {
				made <- err
				return
			}
		}
		m := NewManifest("before", 2)
		m.Spec.Provider.Workers[0].Maximum = 8
		_, err := bed.Garden.ApplyShoot(ctx, m, true)
		made <- err
	}()
	v.watchUntil(t, bed, func() bool { return len(v.shoots) == 11 && v.shoots["before"].SentGeneration == 2 })
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	for name, o := range v.shoots {
		if diff := cmp.Diff(bed.mustGetShoot(t, name), o); diff != "" {
			t.Errorf("%s was told of otherwise than it is: %s (-is +told)", name, diff)
		}
	}

	// The watch continues where it was, without a lost event.
	foreign := NewManifest("foreign", 1)
	foreign.Metadata.Labels = nil
	bed.Put(t, foreign)
	bed.mustDeleteShoot(t, "s03")
	bed.waitUntilShootGone(t, "s03")
	bed.mustApplyShoot(t, NewManifest("last", 1), false)
	v.watchUntil(t, bed, func() bool { return len(v.gone) > 0 && v.shoots["last"].Name != "" })
	if diff := cmp.Diff([]string{"s03"}, v.gone); diff != "" {
		t.Errorf("gone: %s (-want +got)", diff)
	}
	if _, told := v.shoots["foreign"]; told || len(v.shoots) != 11 {
		t.Errorf("it tells of %d Shoots, of the foreign one: %t", len(v.shoots), told)
	}
}

func testWatchFromForgottenVersionExpires(t *testing.T, bed *Bed) {
	t.Helper()
	bed.mustApplyShoot(t, NewManifest("a", 1), false)
	err := bed.Garden.WatchShoots(newTimeoutContext(t), bed.Forgotten(t), func(shoot.Event) error { return nil })
	if !errors.Is(err, shoot.ErrExpired) {
		t.Errorf("from a version of long ago: got %v", err)
	}
}

func testWatchReturnsHandlerError(t *testing.T, bed *Bed) {
	t.Helper()
	l, err := bed.Garden.ListShoots(newTimeoutContext(t))
	if err != nil {
		t.Fatal(err)
	}
	bed.mustApplyShoot(t, NewManifest("a", 1), false)
	err = bed.Garden.WatchShoots(newTimeoutContext(t), l.ResourceVersion, func(shoot.Event) error { return errEnough })
	if !errors.Is(err, errEnough) {
		t.Errorf("got %v, want the handler's error", err)
	}
	ctx, cancel := context.WithCancelCause(newTimeoutContext(t))
	cancel(errEnough)
	err = bed.Garden.WatchShoots(ctx, l.ResourceVersion, func(shoot.Event) error { return nil })
	if !errors.Is(err, errEnough) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
}
