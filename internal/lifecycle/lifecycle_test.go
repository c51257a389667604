package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// newPart returns a part that takes d to stop and then records its name in log.
func newPart(name string, d time.Duration, log *[]string) lifecycle.Part {
	return lifecycle.Part{Name: name, Run: func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(d)
		*log = append(*log, name)
		return nil
	}}
}

func TestRunStopsInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		var log []string
		err := lifecycle.Run(ctx, lifecycle.Options{},
			newPart("pool", 0, &log),
			newPart("workers", 3*time.Second, &log),
			newPart("listener", time.Second, &log),
		)
		if err != nil {
			t.Fatalf("Run() = %v, want nil", err)
		}
		if diff := cmp.Diff([]string{"listener", "workers", "pool"}, log); diff != "" {
			t.Errorf("order of stopping (-want +got):\n%s", diff)
		}
	})
}

func TestRunEndsWithItsFirstPart(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		reason string
		run    func(context.Context) error
		want   string
	}{
		"Failure":     {"a part that fails ends the process with its error", func(context.Context) error { return boom }, "run broken: boom"},
		"EarlyReturn": {"a part that returns unasked is a fault too", func(context.Context) error { return nil }, "run broken: stopped unexpectedly"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log []string
				err := lifecycle.Run(t.Context(), lifecycle.Options{},
					newPart("pool", 0, &log),
					lifecycle.Part{Name: "broken", Run: tc.run},
				)
				if err == nil || err.Error() != tc.want {
					t.Errorf("%s: Run() = %v, want %q", tc.reason, err, tc.want)
				}
				if diff := cmp.Diff([]string{"pool"}, log); diff != "" {
					t.Errorf("%s: stopped (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestRunNamesThePartThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		var log []string
		begin := time.Now()
		err := lifecycle.Run(ctx, lifecycle.Options{StopTimeout: 5 * time.Second},
			newPart("pool", 0, &log),
			lifecycle.Part{Name: "stuck", Run: func(context.Context) error {
				time.Sleep(time.Hour)
				return nil
			}},
		)
		if !errors.Is(err, lifecycle.ErrStopTimeout) || !strings.Contains(err.Error(), "stuck") {
			t.Errorf("Run() = %v, want ErrStopTimeout naming stuck", err)
		}
		if took := time.Since(begin); took != 6*time.Second {
			t.Errorf("Run took %s, want the second until stop and the bound of one part", took)
		}
		if diff := cmp.Diff([]string{"pool"}, log); diff != "" {
			t.Errorf("stopped (-want +got):\n%s", diff)
		}
		time.Sleep(2 * time.Hour) // lets the stuck part end, so that the bubble can
	})
}

func TestRunWithoutParts(t *testing.T) {
	if err := lifecycle.Run(t.Context(), lifecycle.Options{}); err != nil {
		t.Errorf("Run() = %v, want nil: nothing to run is nothing to fail", err)
	}
}

func TestDiscardClosesFromTheLastToTheFirst(t *testing.T) {
	var log []string
	newHolder := func(name string, err error) lifecycle.Part {
		return lifecycle.Part{Name: name, Close: func() error {
			log = append(log, name)
			return err
		}}
	}
	jammed := errors.New("jammed")
	err := lifecycle.CloseAll(newHolder("pool", jammed), lifecycle.Part{Name: "holds nothing"}, newHolder("listener", nil))
	if diff := cmp.Diff([]string{"listener", "pool"}, log); diff != "" {
		t.Errorf("order of closing (-want +got):\n%s", diff)
	}
	if !errors.Is(err, jammed) || err.Error() != "close pool: jammed" {
		t.Errorf("Discard() = %v, want %q", err, "close pool: jammed")
	}
}
