package clusterworker

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// answersLate is a garden that answers each request after the given time. An apply is
// one request, a deletion three.
func answersLate(d time.Duration) func(context.Context, verb, string) error {
	return func(ctx context.Context, v verb, name string) error {
		requests := 1
		if v == verbDelete {
			requests = 3
		}
		for range requests {
			if err := takes(d)(ctx, v, name); err != nil {
				return err
			}
		}
		return nil
	}
}

// probeLate is the probe of such a garden.
func probeLate(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := backoff.Sleep(ctx, d); err != nil {
			return shoot.NewClassErrorf(shoot.ClassUnavailable, "no answer: %w", context.Cause(ctx))
		}
		return nil
	}
}

// TestSlowGardenIsNotDown: a garden that answers every request late is not down.
func TestSlowGardenIsNotDown(t *testing.T) {
	const late = 6 * time.Second
	cases := map[string]struct {
		reason string
		change func(*Config)
	}{
		"Defaults": {reason: "a deletion takes 18 s, and a call may take longer"},
		"ShortTimeout": {
			reason: "each request has a limit of its own, and the lease is renewed while the call runs",
			change: func(c *Config) { c.CallTimeout, c.Lease = 15*time.Second, 10*time.Second },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, tc.change, func(r *fixture) {
				r.garden.set(answersLate(late), probeLate(late))
				r.start()
				edits := func(from, to int) {
					for i := from; i < to; i++ {
						r.store.edit(fmt.Sprintf("cluster-%d", i), nil)
					}
				}
				edits(0, 10)
				r.pass(time.Minute)
				r.wantSynced()
				r.store.delete("cluster-0")
				r.pass(time.Second)
				edits(10, 20)
				r.pass(time.Minute)
				r.wantSynced()
				r.wantMetric("gardener_outages_total", 0)
				r.wantMetric("fence_rejections_total", 0)
				if n := r.garden.total(); n != 21 {
					t.Errorf("%s: %d calls for 21 changes", tc.reason, n)
				}
			})
		})
	}
}

// TestTimeoutsCountAgainstTheirRow: a call that times out counts against its row if
// Gardener answers, however late, and against no row otherwise.
func TestTimeoutsCountAgainstTheirRow(t *testing.T) {
	cases := map[string]struct {
		reason   string
		probed   func(context.Context) error
		attempts int
		class    ErrorClass
		outages  float64
	}{
		"Answers":       {reason: "it is the Shoot", attempts: 1, class: ClassTimeout},
		"AnswersLate":   {reason: "a late answer is one", probed: probeLate(14 * time.Second), attempts: 1, class: ClassTimeout},
		"DoesNotAnswer": {reason: "it is Gardener", probed: probeLate(time.Hour), class: ErrorClass(shoot.ClassUnavailable), outages: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *Config) { c.CallTimeout = 15 * time.Second }, func(r *fixture) {
				r.garden.set(takes(time.Hour), tc.probed)
				r.store.edit("a", nil)
				r.start()
				r.pass(90 * time.Second)
				if row := r.store.row("a"); row.attempts != tc.attempts || row.class != tc.class || row.err == "" {
					t.Errorf("%s: attempts %d, class %q, error %q", tc.reason, row.attempts, row.class, row.err)
				}
				r.wantMetric("gardener_outages_total", tc.outages)
				r.garden.set(nil, nil)
				r.pass(2 * time.Minute)
				r.wantSynced()
			})
		})
	}
}

// TestAnAnsweredProbeEndsAnOutage: a hanging probe does not keep the next one from
// detecting that Gardener is back, and a late answer closes the breaker.
func TestAnAnsweredProbeEndsAnOutage(t *testing.T) {
	var hangs atomic.Bool
	cases := map[string]struct {
		reason string
		probed func(context.Context) error
		within time.Duration
	}{
		"Late": {reason: "an answer counts however long it took", probed: probeLate(50 * time.Second), within: 52 * time.Second},
		"Hung": {reason: "a connection that is dead is not waited for", within: probeHangs + 2*probeInterval, probed: func(ctx context.Context) error {
			if hangs.Swap(false) {
				<-ctx.Done()
			}
			return context.Cause(ctx)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(r *fixture) {
				r.garden.set(refuses(shoot.ClassUnavailable), func(context.Context) error { return errDown })
				r.store.edit("a", nil)
				r.start()
				r.pass(10*time.Second - time.Millisecond)
				hangs.Store(true)
				r.garden.set(nil, tc.probed)
				r.pass(tc.within)
				if since := r.worker.CollectStats().OutageSince; !since.IsZero() {
					t.Errorf("%s: it lasts since %s", tc.reason, since)
				}
				r.pass(10 * time.Second)
				r.wantSynced()
			})
		})
	}
}

// TestAnOutageIsTold: while the breaker is open, the worker records that in the
// database, for the API, and in its warning, and stays ready.
func TestAnOutageIsTold(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		down := func(context.Context) error { return shoot.NewClassErrorf(shoot.ClassUnavailable, "connection refused") }
		r.garden.set(refuses(shoot.ClassUnavailable), down)
		r.store.edit("a", nil)
		r.start()
		began := time.Now()
		r.pass(time.Second)
		o, ok := r.store.outages[r.worker.deps.Owner]
		if !ok || !o.Since.Equal(began) || !strings.Contains(o.Reason, "connection refused") {
			t.Errorf("the database has %+v", r.store.outages)
		}
		if text := r.worker.DescribeOutageOrEmpty(); !strings.Contains(text, "gardener unavailable since") || !strings.Contains(text, "connection refused") {
			t.Errorf("the warning is %q", text)
		}
		if err := r.worker.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		n := r.store.count(toNoteOutage)
		r.pass(time.Minute)
		if got := r.store.count(toNoteOutage) - n; got != 6 {
			t.Errorf("noted %d times in a minute, want once in 10 s", got)
		}
		r.garden.set(nil, nil)
		r.pass(2 * time.Second)
		if text := r.worker.DescribeOutageOrEmpty(); text != "" || len(r.store.outages) != 0 {
			t.Errorf("after the outage: %q, %+v", text, r.store.outages)
		}
	})
}

// TestALeaseThatIsNotRenewed: a call ends before a lease that cannot be renewed, and
// its result is not written, as another worker may follow.
func TestALeaseThatIsNotRenewed(t *testing.T) {
	bubble(t, func(c *Config) { c.Lease = 12 * time.Second }, func(r *fixture) {
		r.store.setFault(func(_ context.Context, asked requestKind) error {
			if asked == toRenew {
				return errDown
			}
			return nil
		})
		var cut time.Time
		r.garden.set(func(ctx context.Context, v verb, name string) error {
			err := takes(30*time.Second)(ctx, v, name)
			if err != nil && cut.IsZero() {
				cut = time.Now()
			}
			return err
		}, nil)
		r.store.edit("a", nil)
		began := time.Now()
		r.start()
		r.pass(11500 * time.Millisecond)
		if took := cut.Sub(began); took != 11*time.Second {
			t.Errorf("the call ended after %s, want a second before the end of the lease", took)
		}
		if row := r.store.row("a"); row.err != "" || row.token == 0 {
			t.Errorf("something was written: %+v", row)
		}
		r.wantMetric("lost_leases_total", 1)
		r.store.setFault(nil)
		r.pass(time.Minute)
		r.wantSynced()
		if r.metric("lease_renewals_total") == 0 {
			t.Error("no renewal is counted")
		}
	})
}

// TestHangingRowsHoldUpNobody: rows whose calls hang do not block new ones. A hanging
// call frees its slot, and rows that timed out before get at most a quarter of the
// slots.
func TestHangingRowsHoldUpNobody(t *testing.T) {
	bubble(t, func(c *Config) { c.CallTimeout = 10 * time.Second }, func(r *fixture) {
		r.garden.set(func(ctx context.Context, v verb, name string) error {
			if strings.HasPrefix(name, "cluster") {
				return takes(2*time.Minute)(ctx, v, name)
			}
			return takes(20*time.Millisecond)(ctx, v, name)
		}, nil)
		r.start()
		r.pass(time.Second)
		ids := r.add(100)
		news := 0
		// New rows come while the others hang for the first time, and at each later
		// try.
		for range 40 {
			news++
			id := fmt.Sprintf("new-%02d", news)
			r.store.edit(id, nil)
			r.pass(time.Second)
			if row := r.store.row(id); !row.synced {
				t.Fatalf("%s is not synced within a second", id)
			}
			r.pass(4 * time.Second)
			suspects := 0
			r.worker.limiter.mu.Lock()
			for _, c := range r.worker.limiter.running {
				if c.timedOut {
					suspects++
				}
			}
			r.worker.limiter.mu.Unlock()
			if suspects > 8 {
				t.Fatalf("%d rows that timed out before hold a slot", suspects)
			}
		}
		tried := 0
		for _, id := range ids {
			if row := r.store.row(id); row.class == ClassTimeout || row.token != 0 {
				tried++
			}
		}
		if tried != 100 {
			t.Errorf("%d of 100 rows that hang were tried", tried)
		}
		r.garden.set(nil, nil)
		r.pass(20 * time.Minute)
		r.wantSynced()
	})
}

// TestRowsOfADeadWorkerWaitALease: the rows of a dead worker wait for one lease,
// whatever the poll interval is.
func TestRowsOfADeadWorkerWaitALease(t *testing.T) {
	bubble(t, func(c *Config) { c.PollInterval = time.Hour }, func(r *fixture) {
		dead := newFixture(r.t, r.store, newFakeGarden(), nil)
		r.start()
		r.pass(7 * time.Second)
		r.store.notify = nil
		r.store.edit("a", nil)
		if _, err := r.store.ClaimRows(t.Context(), dead.worker.deps.Owner, ClaimLimits{Slots: 1}, time.Minute); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute - time.Millisecond)
		if row := r.store.row("a"); row.synced {
			t.Error("synced within the lease of another worker")
		}
		r.pass(200 * time.Millisecond)
		r.wantSynced()
	})
}

// TestWritesThatAreLate: clusters are synced even if writes take 30 s.
func TestWritesThatAreLate(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.garden.set(answersLate(30*time.Second), nil)
		r.add(50)
		r.start()
		r.pass(31 * time.Second)
		r.wantSynced()
		r.store.delete("cluster-0001")
		r.pass(91 * time.Second)
		r.wantSynced()
	})
}
