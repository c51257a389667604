package intake_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

func TestCallerLimits(t *testing.T) {
	l := intake.NewCallerLimits(2, 3)
	now := time.Now()
	allowed := func(caller string, at time.Time) (n int) {
		for range 10 {
			if l.Allow(caller, at) {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		reason, caller string
		after          time.Duration
		want           int
	}{
		{"its burst", "a", 0, 3},
		{"another has one, too", "b", 0, 3},
		{"what comes back in a second", "a", time.Second, 2},
		{"no more than the burst", "a", time.Hour, 3},
	} {
		if got := allowed(step.caller, now.Add(step.after)); got != step.want {
			t.Errorf("%s: %d calls, want %d", step.reason, got, step.want)
		}
	}
	if got := intake.NewCallerLimits(0, 0); got.PerSecond() != intake.DefaultCallerRate {
		t.Errorf("the default is %v a second", got.PerSecond())
	}
}

func TestCallerLimitsConcurrently(t *testing.T) {
	l := intake.NewCallerLimits(1, 50)
	now := time.Now()
	var allowed atomic.Int32
	var calling sync.WaitGroup
	for range 8 {
		calling.Go(func() {
			for range 100 {
				if l.Allow("a", now) {
					allowed.Add(1)
				}
			}
		})
	}
	calling.Wait()
	if n := allowed.Load(); n != 50 {
		t.Errorf("%d calls at once, want 50", n)
	}
	for i := range 5000 { // forgotten callers start again; memory does not grow
		l.Allow(fmt.Sprint(i), now)
	}
	if !l.Allow("a", now) {
		t.Error("a caller is remembered for ever")
	}
}

func TestCallerOrigin(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:4711": "192.0.2.1", "192.0.2.1": "192.0.2.1", "[::ffff:192.0.2.1]:1": "192.0.2.1",
		"[2001:db8:0:1::1]:1": "2001:db8:0:1::/64", "[2001:db8:0:1:ffff::9]:2": "2001:db8:0:1::/64", "[2001:db8:0:2::1]:1": "2001:db8:0:2::/64",
		"[fe80::1%eth0]:1": "fe80::/64", "@": "@", "": "", "pipe": "pipe",
	} {
		if got := intake.CallerIPOrIPv6Prefix(address); got != want {
			t.Errorf("%q is of %q, want %q", address, got, want)
		}
	}
}
