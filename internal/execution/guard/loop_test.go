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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A cluster is what a Watch sees.
type cluster struct {
	mu      sync.Mutex
	since   time.Time
	err     error
	looks   int
	changed func()
}

func (c *cluster) look(context.Context) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	return c.since, c.err
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
	w := newWatch(c.look, c.follow)
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
	if err := newWatch(nil, nil).Missing(); !errors.Is(err, errNoLook) {
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
		time.Sleep(lookEvery - 1)
		wantMissing(t, w, nil)
		time.Sleep(time.Nanosecond)
		wantMissing(t, w, errGone)

		c.becomes(nil)
		time.Sleep(lookAgain)
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
		time.Sleep(trust - 1)
		wantMissing(t, w, nil)
		time.Sleep(time.Nanosecond)
		wantMissing(t, w, errAway)
		c.becomes(nil)
		time.Sleep(lookAgain)
		wantMissing(t, w, nil)

		c.becomes(errGone)
		time.Sleep(lookEvery)
		wantMissing(t, w, errGone)
		c.becomes(unknownError{errAway})
		time.Sleep(lookAgain)
		wantMissing(t, w, errAway) // what was missing is not there for want of an answer
	})
}

// TestOlderThanTheGuard: an approval from before the guard can be from anybody.
func TestOlderThanTheGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		since := time.Now().Truncate(time.Second)
		c := &cluster{since: since}
		w := running(t, c)
		wantMissing(t, w, nil)
		for name, tc := range map[string]struct {
			reason  string
			created time.Time
			missing bool
		}{
			"Before": {"anybody could have approved it", since.Add(-time.Second), true},
			"With":   {"times have seconds", since, false},
			"After":  {"it was guarded all the time", since.Add(time.Second), false},
		} {
			ke := &v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(tc.created)}}
			if err := w.MissingFor(ke); (err != nil) != tc.missing {
				t.Errorf("%s: %s: MissingFor() = %v", name, tc.reason, err)
			}
		}
		c.becomes(errGone)
		c.tell()
		synctest.Wait()
		ke := &v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(since.Add(time.Hour))}}
		if err := w.MissingFor(ke); !errors.Is(err, errGone) {
			t.Errorf("MissingFor() = %v without a guard", err)
		}
	})
}

// TestLogged holds that the log hears once when the guard goes, and when it is
// there again, and nothing of a look that could not tell.
func TestLogged(t *testing.T) {
	c := &cluster{}
	var said strings.Builder
	w := newWatch(c.look, c.follow)
	w.log = slog.New(slog.NewTextHandler(&said, nil))
	for _, err := range []error{nil, nil, errNoPolicy, errNoPolicy, unknownError{errLookBound}, errNoPolicy, nil} {
		c.becomes(err)
		_ = w.lookOnce(t.Context())
	}
	if gone, there := strings.Count(said.String(), "no approval counts"), strings.Count(said.String(), "are there"); gone != 1 || there != 2 {
		t.Errorf("it says %d times that the guard is gone, and %d times that it is there:\n%s", gone, there, said.String())
	}
}

var errNoPolicy = errors.New("there is no policy")
