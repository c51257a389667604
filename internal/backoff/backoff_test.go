package backoff_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

var errBoom = errors.New("boom")

// askError requests a delay, as a client's error for 429 does.
type askError time.Duration

func (e askError) Error() string             { return "too many requests" }
func (e askError) RetryAfter() time.Duration { return time.Duration(e) }

func TestDelayWithoutJitter(t *testing.T) {
	cases := map[string]struct {
		reason string
		policy backoff.Policy
		want   []time.Duration
	}{
		"Defaults": {
			"the zero policy doubles from 100 ms",
			backoff.Policy{Jitter: -1},
			[]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond},
		},
		"Capped": {
			"the maximum holds and wins over the initial delay",
			backoff.Policy{Initial: 3 * time.Second, Max: 2 * time.Second, Jitter: -1},
			[]time.Duration{2 * time.Second, 2 * time.Second},
		},
		"Constant": {
			"a factor below one does not shrink",
			backoff.Policy{Initial: time.Second, Factor: 0.5, Jitter: -1},
			[]time.Duration{time.Second, time.Second, time.Second},
		},
		"Fraction": {
			"a factor need not be whole",
			backoff.Policy{Initial: time.Second, Factor: 1.5, Jitter: -1},
			[]time.Duration{time.Second, 1500 * time.Millisecond, 2250 * time.Millisecond},
		},
		"NotANumber": {
			"a factor that is no number is the default",
			backoff.Policy{Initial: time.Second, Factor: math.NaN(), Jitter: -1},
			[]time.Duration{time.Second, 2 * time.Second},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []time.Duration
			for i := range tc.want {
				got = append(got, tc.policy.Delay(i))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: Delay (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if got := (backoff.Policy{Jitter: -1}).Delay(-7); got != backoff.DefaultInitial {
		t.Errorf("Delay(-7) = %s, want that of the first retry", got)
	}
}

// TestDelayStaysWithinItsSpread is the whole promise of Delay for any policy
// and any attempt, overflow included.
func TestDelayStaysWithinItsSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := backoff.Policy{
			Initial: time.Duration(rapid.Int64Min(1).Draw(t, "initial")),
			Max:     time.Duration(rapid.Int64Min(1).Draw(t, "max")),
			Factor:  rapid.OneOf(rapid.Float64Range(1, 10), rapid.Float64()).Draw(t, "factor"),
			Jitter:  rapid.OneOf(rapid.Float64Range(0.01, 1), rapid.Float64()).Draw(t, "jitter"),
		}
		attempt := rapid.OneOf(rapid.IntRange(0, 100), rapid.Int()).Draw(t, "attempt")

		exact := p
		exact.Jitter = -1
		full := exact.Delay(attempt)
		if full <= 0 || full > p.Max {
			t.Fatalf("Delay(%d) without jitter = %s, want within (0, %s]", attempt, full, p.Max)
		}
		if next := exact.Delay(max(attempt, 0) / 2); next > full {
			t.Fatalf("Delay(%d) = %s is shorter than an earlier one, %s", attempt, full, next)
		}
		jitter := p.Jitter
		if jitter == 0 {
			jitter = backoff.DefaultJitter
		}
		jitter = min(max(jitter, 0), 1)
		// A float's rounding of a duration near the end of its range.
		floor := float64(full)*(1-jitter) - 2048
		if got := p.Delay(attempt); got < 0 || got > full || float64(got) < floor {
			t.Fatalf("Delay(%d) = %s, want within [%.0f %%, 100 %%] of %s", attempt, got, 100*(1-jitter), full)
		}
	})
}

func TestDelayIsSpread(t *testing.T) {
	p := backoff.Policy{Initial: time.Hour, Max: time.Hour, Jitter: 0.5}
	lowest, highest := time.Hour, time.Duration(0)
	for range 1000 {
		d := p.Delay(0)
		lowest, highest = min(lowest, d), max(highest, d)
	}
	if lowest > 33*time.Minute || highest < 57*time.Minute {
		t.Errorf("1000 delays lie within [%s, %s], want them spread over [30m, 60m]", lowest, highest)
	}
}

func TestRetry(t *testing.T) {
	cases := map[string]struct {
		reason string
		policy backoff.Policy
		errs   []error // of the calls in turn; after the last, nil
		calls  int
		took   time.Duration
		want   error
		text   string
	}{
		"First": {reason: "what works is called once", calls: 1},
		"Third": {
			reason: "failures are waited out with growing delays", policy: backoff.Policy{Jitter: -1},
			errs: []error{errBoom, errBoom}, calls: 3, took: 300 * time.Millisecond,
		},
		"Permanent": {
			reason: "a permanent error ends it at once", policy: backoff.Policy{},
			errs: []error{fmt.Errorf("save: %w", backoff.Permanent(errBoom))}, calls: 1, want: errBoom, text: "save: boom",
		},
		"Attempts": {
			reason: "the first attempt counts", policy: backoff.Policy{Initial: time.Second, Jitter: -1, MaxAttempts: 2},
			errs: []error{errBoom, errBoom, errBoom}, calls: 2, took: time.Second, want: errBoom, text: "failed after 2 attempts in 1s: boom",
		},
		"Elapsed": {
			reason: "no wait begins that would end too late", policy: backoff.Policy{Initial: time.Second, Jitter: -1, MaxElapsed: 6 * time.Second},
			errs: []error{errBoom, errBoom, errBoom, errBoom}, calls: 3, took: 3 * time.Second, want: errBoom, text: "failed after 3 attempts in 3s: boom",
		},
		"ElapsedExactly": {
			reason: "a wait may end at the bound", policy: backoff.Policy{Initial: time.Second, Jitter: -1, MaxElapsed: 3 * time.Second},
			errs: []error{errBoom, errBoom}, calls: 3, took: 3 * time.Second,
		},
		"Asked": {
			reason: "the server's wish is on top of the delay", policy: backoff.Policy{Initial: time.Second, Jitter: -1},
			errs: []error{fmt.Errorf("list: %w", askError(7*time.Second))}, calls: 2, took: 8 * time.Second,
		},
		"AskedTooMuch": {
			reason: "a mistaken header stops nobody for a week", policy: backoff.Policy{Initial: time.Second, Jitter: -1},
			errs: []error{askError(7 * 24 * time.Hour)}, calls: 2, took: time.Second + backoff.MaxRetryAfter,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, calls := time.Now(), 0
				err := backoff.Retry(t.Context(), tc.policy, func(context.Context) error {
					calls++
					if calls <= len(tc.errs) {
						return tc.errs[calls-1]
					}
					return nil
				})
				if !errors.Is(err, tc.want) || err != nil && err.Error() != tc.text {
					t.Errorf("%s: Retry() = %v, want %q", tc.reason, err, tc.text)
				}
				if calls != tc.calls {
					t.Errorf("%s: %d calls, want %d", tc.reason, calls, tc.calls)
				}
				if took := time.Since(begin); took != tc.took {
					t.Errorf("%s: took %s, want %s", tc.reason, took, tc.took)
				}
			})
		})
	}
}

func TestRetryEndsWithItsContext(t *testing.T) {
	errStop := errors.New("told to stop")

	t.Run("Waiting", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, errStop)
			defer cancel()
			begin := time.Now()
			err := backoff.Retry(ctx, backoff.Policy{Initial: time.Hour, Max: time.Hour}, func(context.Context) error { return errBoom })
			if !errors.Is(err, errStop) || !errors.Is(err, errBoom) || err.Error() != "told to stop: boom" {
				t.Errorf("Retry() = %v, want the cause and the last error", err)
			}
			if took := time.Since(begin); took != 2*time.Second {
				t.Errorf("took %s, want it to end with the context", took)
			}
		})
	})
	t.Run("Calling", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := 0
		err := backoff.Retry(ctx, backoff.Policy{}, func(ctx context.Context) error {
			calls++
			cancel(errStop)
			return fmt.Errorf("post: %w", context.Cause(ctx))
		})
		if err == nil || err.Error() != "post: told to stop" || calls != 1 {
			t.Errorf("Retry() = %v after %d calls, want the error that tells it already, once", err, calls)
		}
	})
	t.Run("Before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errStop)
		err := backoff.Retry(ctx, backoff.Policy{}, func(context.Context) error {
			t.Error("called with a context that had ended")
			return nil
		})
		if !errors.Is(err, errStop) {
			t.Errorf("Retry() = %v, want %v", err, errStop)
		}
	})
}

func TestRetryDoesNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		p := backoff.Policy{Initial: math.MaxInt64, Max: math.MaxInt64, Jitter: -1}
		calls := 0
		_ = backoff.Retry(ctx, p, func(context.Context) error {
			calls++
			return askError(math.MaxInt64)
		})
		if calls != 1 {
			t.Errorf("%d calls, want one: the wait outlasts the context", calls)
		}
		p.MaxElapsed = time.Hour
		if err := backoff.Retry(t.Context(), p, func(context.Context) error { return errBoom }); !errors.Is(err, errBoom) {
			t.Errorf("Retry() = %v, want it to give up before a wait that is too long", err)
		}
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := backoff.Sleep(t.Context(), time.Minute); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("Sleep(1m) = %v after %s, want nil after 1m", err, time.Since(begin))
		}
		if err := backoff.Sleep(t.Context(), -time.Minute); err != nil {
			t.Errorf("Sleep(-1m) = %v, want nil at once", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errBoom)
		if err := backoff.Sleep(ctx, 0); !errors.Is(err, errBoom) {
			t.Errorf("Sleep(0) with an ended context = %v, want its cause", err)
		}
	})
}

func TestPermanentWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		err := backoff.Retry(t.Context(), backoff.Policy{}, func(ctx context.Context) error {
			if calls++; calls == 3 {
				return nil
			}
			return backoff.Retry(ctx, backoff.Policy{}, func(context.Context) error { return backoff.Permanent(errBoom) })
		})
		if err != nil || calls != 3 {
			t.Errorf("%d calls, %v; what is permanent within must not end the Retry around it", calls, err)
		}
	})
}

func TestPermanent(t *testing.T) {
	if backoff.Permanent(nil) != nil {
		t.Error("Permanent(nil) is not nil")
	}
	if backoff.IsPermanent(nil) || backoff.IsPermanent(errBoom) {
		t.Error("an unmarked error is permanent")
	}
	err := fmt.Errorf("send: %w", errors.Join(errBoom, backoff.Permanent(errBoom)))
	if !backoff.IsPermanent(err) {
		t.Error("the mark is not found through wrapping and joining")
	}
}

func TestRetryAfter(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		want   time.Duration
		ok     bool
	}{
		"None":    {reason: "an error that asks for nothing", err: errBoom},
		"Nil":     {reason: "no error"},
		"Zero":    {reason: "zero is no wish", err: askError(0)},
		"Wrapped": {reason: "found in the chain", err: fmt.Errorf("get: %w", askError(time.Second)), want: time.Second, ok: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := backoff.RetryAfter(tc.err)
			if got != tc.want || ok != tc.ok {
				t.Errorf("%s: RetryAfter() = %s, %t, want %s, %t", tc.reason, got, ok, tc.want, tc.ok)
			}
		})
	}
}
