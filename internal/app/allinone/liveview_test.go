package allinone

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLiveViewRepaintsAndRestores(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var shown []float64
		published := uint64(0)
		v := LiveView{
			Out:  &out,
			Size: func() (int, int) { return 0, 0 },
			Snapshot: func() FleetSnapshot {
				published += 5 // four times a second
				return FleetSnapshot{Now: time.Now(), Published: published}
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second+time.Millisecond)
		defer cancel()
		if err := v.Run(ctx); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		if !strings.HasPrefix(got, enterScreen) || !strings.HasSuffix(got, leaveScreen) {
			t.Errorf("the terminal was not taken and given back: %q … %q", got[:30], got[len(got)-30:])
		}
		if n := strings.Count(got, frameBegin); n != 9 {
			t.Errorf("%d frames in two seconds, want 9", n)
		}
		last := got[strings.LastIndex(got, frameBegin):]
		if !strings.Contains(last, "20.0/s  45 published") {
			t.Errorf("the rate is not shown: %q, %v", last, shown)
		}
		if longest := strings.Repeat("─", defaultWidth-1); !strings.Contains(last, longest) || strings.Contains(last, longest+"─") {
			t.Errorf("an unknown size is not taken as %d columns with the last one free", defaultWidth)
		}
	})
}

func TestLiveViewFollowsTheSize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		width := 100
		v := LiveView{Out: &out, Interval: time.Second, Snapshot: busySnapshot, Size: func() (int, int) { width -= 10; return width, 10 }}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := v.Run(ctx); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{89, 79} {
			if !strings.Contains(out.String(), "\n"+strings.Repeat("─", n)+lineEnd) {
				t.Errorf("no rule of %d columns", n)
			}
		}
	})
}

func TestPanicRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := LiveView{Out: &out, Size: func() (int, int) { return 80, 24 }, Snapshot: func() FleetSnapshot { panic("boom") }}
	defer func() {
		if r := recover(); r != "boom" {
			t.Errorf("recovered %v", r)
		}
		if !strings.HasSuffix(out.String(), leaveScreen) {
			t.Errorf("the terminal was left as %q", out.String())
		}
	}()
	_ = v.Run(t.Context())
	t.Error("the panic was swallowed")
}

// A brokenTerminal takes so many writes.
type brokenTerminal struct{ left int }

var errBroken = errors.New("input/output error")

func (b *brokenTerminal) Write(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errBroken
	}
	b.left--
	return len(p), nil
}

func TestTerminalGoesAway(t *testing.T) {
	t.Parallel()
	for left := range 4 {
		synctest.Test(t, func(t *testing.T) {
			v := LiveView{Out: &brokenTerminal{left}, Size: func() (int, int) { return 80, 24 }, Snapshot: busySnapshot}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := v.Run(ctx); !errors.Is(err, errBroken) || ctx.Err() != nil {
				t.Errorf("after %d writes: got %v, want the terminal's error at once", left, err)
			}
		})
	}
}

func TestRateMeter(t *testing.T) {
	t.Parallel()
	var m rateMeter
	at := func(seconds float64) time.Time { return now.Add(time.Duration(seconds * float64(time.Second))) }
	steps := []struct {
		reason string
		at     float64
		count  uint64
		want   float64
	}{
		{"one sample has no rate", 0, 100, 0},
		{"the same moment has none either", 0, 100, 0},
		{"two have", 2, 110, 5},
		{"over the whole window", 10, 120, 2},
		{"what is older no longer counts", 20, 120, 0},
		{"a count that begins anew", 21, 3, 0},
		{"goes on from there", 22, 5, 2},
		{"a long silence still has a rate", 122, 105, 1},
	}
	for _, s := range steps {
		if got := m.updateRate(at(s.at), s.count); got != s.want {
			t.Errorf("%s: got %g, want %g", s.reason, got, s.want)
		}
	}
}
