package guard

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A cluster is what a Watch sees.
type cluster struct {
	mu      sync.Mutex
	seen    observation
	err     error
	present int // looks at the objects alone
	looks   int
	changed func()
}

func (c *cluster) look(context.Context) (observation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	if c.err != nil {
		return observation{}, c.err
	}
	return c.seen, nil
}

func (c *cluster) lookAtObjects(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.present++
	return c.seen.objects, c.err
}

func (c *cluster) follow(ctx context.Context, changed func()) {
	c.mu.Lock()
	c.changed = changed
	c.mu.Unlock()
	<-ctx.Done()
}

// becomes is what is seen from now on.
func (c *cluster) becomes(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// tell tells of a change.
func (c *cluster) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed()
}

// running starts a Watch of a cluster in a bubble.
func running(t *testing.T, c *cluster) *Watch {
	t.Helper()
	w := newWatch(c.look, c.lookAtObjects, c.follow)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

func wantMissing(t *testing.T, w *Watch, want error) {
	t.Helper()
	synctest.Wait()
	if got := w.Missing(); !errors.Is(got, want) {
		t.Errorf("after %s: Missing() = %v, want %v", time.Now().Format("15:04:05"), got, want)
	}
}

var (
	errGone = errors.New("gone")
	errAway = errors.New("no route to host")
)

// TestNothingIsTrustedUnseen: without a look there is no guard.
func TestNothingIsTrustedUnseen(t *testing.T) {
	t.Parallel()
	if err := newWatch(nil, nil, nil).Missing(); !errors.Is(err, errNotObserved) {
		t.Errorf("Missing() = %v before the first look", err)
	}
}

func TestLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		w := running(t, c)
		wantMissing(t, w, nil)
		if c.looks != 1 {
			t.Errorf("%d looks at start", c.looks)
		}
		c.becomes(errGone)
		time.Sleep(observeInterval - 1)
		wantMissing(t, w, nil)
		time.Sleep(time.Nanosecond)
		wantMissing(t, w, errGone)

		c.becomes(nil)
		time.Sleep(observeRetryDelay)
		wantMissing(t, w, nil)

		c.becomes(errGone)
		c.tell()
		wantMissing(t, w, errGone) // at once
	})
}

// TestAway: while the API server does not answer, what was seen last is good
// for a while, and no longer.
func TestAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		w := running(t, c)
		wantMissing(t, w, nil)
		c.becomes(unknownError{errAway})
		time.Sleep(observationTTL - 1)
		wantMissing(t, w, nil)
		time.Sleep(time.Nanosecond)
		wantMissing(t, w, errAway)
		c.becomes(nil)
		time.Sleep(observeRetryDelay)
		wantMissing(t, w, nil)

		c.becomes(errGone)
		time.Sleep(observeInterval)
		wantMissing(t, w, errGone)
		c.becomes(unknownError{errAway})
		time.Sleep(observeRetryDelay)
		wantMissing(t, w, errAway) // what was missing is not there for want of an answer
	})
}

// TestPeriodCovers holds which executions were created within a period.
func TestPeriodCovers(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason string
		period Period
		at     time.Time
		want   bool
	}{
		"Before": {"nobody checked", Period{"a", since}, since.Add(-time.Second), false},
		"With":   {"times have whole seconds, and the period is rounded up", Period{"a", since}, since, true},
		"After":  {"it was guarded all the time", Period{"a", since}, since.Add(time.Hour), true},
		"None":   {"there is no period", Period{}, since, false},
	} {
		if got := tc.period.Covers(tc.at); got != tc.want {
			t.Errorf("%s: %s: Covers() = %t", name, tc.reason, got)
		}
	}
}

// TestConfirm holds that what is confirmed was looked at after the question, by as
// few looks as do.
func TestConfirm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{seen: observation{"objects 1", Period{ID: "a"}}}
		w := running(t, c)
		synctest.Wait()
		wants := func(want string, reason error) {
			t.Helper()
			if p, err := w.Confirm(t.Context()); p.ID != want || !errors.Is(err, reason) {
				t.Errorf("Confirm() = %q, %v, want %q, %v", p.ID, err, want, reason)
			}
		}
		wants("a", nil)
		if c.looks != 1 || c.present != 1 {
			t.Errorf("%d looks and %d at the objects", c.looks, c.present)
		}
		c.mu.Lock()
		c.seen = observation{"objects 2", Period{ID: "b"}}
		c.mu.Unlock()
		if p, err := w.Period(); p.ID != "a" || err != nil {
			t.Errorf("Period() = %q, %v before anybody looked", p.ID, err)
		}
		wants("b", nil)
		c.becomes(errGone)
		wants("", errGone)
		c.becomes(unknownError{errAway})
		wants("", errAway)
		if _, err := w.Confirm(t.Context()); !IsUnknown(err) {
			t.Errorf("Confirm() = %v, which nobody knows", err)
		}
	})
}

// TestConfirmTogether holds that those who ask while a look is under way share the
// next one, and not that one: it may have seen what was before their question.
func TestConfirmTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		var looks int
		w := newWatch(nil, func(context.Context) (string, error) {
			looks++
			<-slow
			return "objects", nil
		}, nil)
		w.missing, w.observedAt, w.seen = nil, time.Now(), observation{"objects", Period{ID: "a"}}
		var all sync.WaitGroup
		ask := func() {
			all.Go(func() {
				if p, err := w.Confirm(t.Context()); p.ID != "a" || err != nil {
					t.Errorf("Confirm() = %q, %v", p.ID, err)
				}
			})
		}
		ask()
		synctest.Wait()
		for range 8 {
			ask()
		}
		synctest.Wait()
		if looks != 1 {
			t.Errorf("%d looks at a time", looks)
		}
		close(slow)
		all.Wait()
		if looks != 2 {
			t.Errorf("%d looks, want 2: the first is too old for the others", looks)
		}
	})
}

// TestConfirmMeanwhile holds that a confirmation does not wait for a look that is
// under way, such as one that waits for an API server which does not answer.
func TestConfirmMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{seen: observation{"objects", Period{ID: "a"}}}
		answers := make(chan struct{})
		w := newWatch(func(context.Context) (observation, error) {
			<-answers
			return c.seen, nil
		}, c.lookAtObjects, nil)
		w.missing, w.observedAt, w.seen = nil, time.Now(), c.seen
		var both sync.WaitGroup
		both.Go(func() { _ = w.observeOnce(t.Context()) })
		synctest.Wait()
		confirmed := false
		both.Go(func() {
			p, err := w.Confirm(t.Context())
			if p.ID != "a" || err != nil {
				t.Errorf("Confirm() = %q, %v", p.ID, err)
			}
			confirmed = true
		})
		synctest.Wait()
		if !confirmed {
			t.Error("it waits for the look")
		}
		close(answers)
		both.Wait()
	})
}

// TestLogged holds that the log hears once when the guard goes, and when it is
// there again, and nothing of a look that could not tell.
func TestLogged(t *testing.T) {
	c := &cluster{}
	var said strings.Builder
	w := newWatch(c.look, c.lookAtObjects, c.follow)
	w.log = slog.New(slog.NewTextHandler(&said, nil))
	for _, err := range []error{nil, nil, errNoPolicy, errNoPolicy, unknownError{errObserveTimeout}, errNoPolicy, nil} {
		c.becomes(err)
		_ = w.observeOnce(t.Context())
	}
	if gone, there := strings.Count(said.String(), "admission policies not in force"), strings.Count(said.String(), "admission policies in force"); gone != 1 || there != 2 {
		t.Errorf("it says %d times that the guard is gone, and %d times that it is there:\n%s", gone, there, said.String())
	}
}

var errNoPolicy = errors.New("there is no policy")
