package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
)

// TestCountsAreAtMostASecondOld checks the age of the counts just before they are replaced. The page adds the
// interval at which it reads them, and must not show any that are older than two seconds.
func TestCountsAreAtMostASecondOld(t *testing.T) {
	const bound = time.Second
	for name, took := range map[string]time.Duration{
		"AtOnce": 0, "AFewRows": 20 * time.Millisecond, "ManyUnsynced": 200 * time.Millisecond, "AThirdOfASecond": 333 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var asOf time.Time
				var rounds int
				var busy time.Duration
				began := time.Now()
				err := pgstore.RunRounds(ctx, func(context.Context) (more bool, err error) {
					start := time.Now()
					time.Sleep(took) // it reads first and commits last
					if age := time.Since(asOf); !asOf.IsZero() && age > bound {
						t.Errorf("the counts were %s old, want at most %s", age, bound)
					}
					asOf, busy = start, busy+took
					if rounds++; rounds == 20 {
						cancel()
					}
					return false, nil
				})
				if err != nil || rounds != 20 {
					t.Fatalf("got %d rounds, %v", rounds, err)
				}
				if idle := time.Since(began) - busy; idle < busy*9/10 { // the last round has no pause after it
					t.Errorf("counting took %s and paused for %s, want at least as long", busy, idle)
				}
			})
		})
	}
}

// TestLongRoundsTakeATenthOfTheTime checks that rounds pause longer if each takes long, because a million clusters are not
// synced.
func TestLongRoundsTakeATenthOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took, rounds = 3 * time.Second, 10
		ctx, cancel := context.WithCancel(t.Context())
		began, ran := time.Now(), 0
		err := pgstore.RunRounds(ctx, func(context.Context) (more bool, err error) {
			time.Sleep(took)
			if ran++; ran == rounds {
				cancel()
			}
			return false, nil
		})
		if want := rounds*took + (rounds-1)*9*took; err != nil || time.Since(began) != want {
			t.Errorf("%d rounds of %s took %s, want %s; %v", rounds, took, time.Since(began), want, err)
		}
	})
}

// TestAFailedRoundPausesNoLonger checks that counting begins soon after a statement that timed out.
func TestAFailedRoundPausesNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 3 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		began, rounds := time.Now(), 0
		err := pgstore.RunRounds(ctx, func(context.Context) (more bool, err error) {
			time.Sleep(took)
			if rounds++; rounds == 2 {
				cancel()
			}
			return false, errors.New("timeout")
		})
		if want := 3 * took; err != nil || time.Since(began) != want {
			t.Errorf("two failed rounds of %s took %s, want %s; %v", took, time.Since(began), want, err)
		}
	})
}

// TestARecountLeavesHalfOfTheTime checks that rounds that leave something to count pause as long as they take, because
// the change feed waits for their transactions.
func TestARecountLeavesHalfOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took, steps = 20 * time.Millisecond, 50
		ctx, cancel := context.WithCancel(t.Context())
		began, rounds := time.Now(), 0
		err := pgstore.RunRounds(ctx, func(context.Context) (more bool, err error) {
			time.Sleep(took)
			if rounds++; rounds == steps {
				cancel()
			}
			return true, nil
		})
		if want := steps*took + (steps-1)*took; err != nil || time.Since(began) != want {
			t.Errorf("%d steps of %s took %s, want %s; %v", steps, took, time.Since(began), want, err)
		}
	})
}

// TestRecountStepsAreShort checks that the size of the steps follows their duration.
func TestRecountStepsAreShort(t *testing.T) {
	cases := map[string]struct {
		reason string
		perRow time.Duration
		want   int
	}{
		"Idle":       {"a fast database counts many rows in a step", time.Microsecond, 1000},
		"Busy":       {"a step takes at most 50 milliseconds", 60 * time.Microsecond, 500},
		"Overloaded": {"a step has some rows, or the recount would never end", 10 * time.Millisecond, 250},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := pgstore.SettleRecountBatch(tc.perRow); got != tc.want {
				t.Errorf("%d rows, want %d: %s", got, tc.want, tc.reason)
			}
		})
	}
}
