package pgstore_test

import (
	"context"
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
