package brokerbench_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/devstack/brokerbench"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

type publisherFunc func(ctx context.Context, e *cloudevent.Event) error

func (f publisherFunc) Publish(ctx context.Context, e *cloudevent.Event) error { return f(ctx, e) }

func TestMatchComparesRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var published, most, now atomic.Int64
		ours := publisherFunc(func(context.Context, *cloudevent.Event) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Millisecond)
			now.Add(-1)
			published.Add(1)
			return nil
		})
		theirs := func(_ context.Context, n, window int) error {
			time.Sleep(time.Duration(n) * time.Millisecond / time.Duration(window) / 2)
			return nil
		}
		m := brokerbench.Match{Name: "broker.x", Want: 0.25, Ours: brokerbench.PublisherSide(ours), Theirs: theirs, Events: 2560}
		r, err := m.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := "ratio broker.x 0.50 want >= 0.25"; r.String() != want {
			t.Errorf("result %q, want %q", r, want)
		}
		if want := int64((brokerbench.Turns + 1) * 2560); published.Load() != want || most.Load() != brokerbench.Window {
			t.Errorf("%d published, %d at once, want %d and %d", published.Load(), most.Load(), want, brokerbench.Window)
		}
	})
}

func TestMatchStopsAtAFailure(t *testing.T) {
	broken := publisherFunc(func(context.Context, *cloudevent.Event) error { return errors.New("down") })
	m := brokerbench.Match{Name: "broker.x", Ours: brokerbench.PublisherSide(broken), Theirs: brokerbench.PublisherSide(broken), Events: 10}
	if _, err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "ours") {
		t.Errorf("Run() = %v, want an error that says whose", err)
	}
}

func TestBodiesAreEvents(t *testing.T) {
	for i, body := range brokerbench.NewEventBodies(40, 3) {
		e, err := cloudevent.Parse(body)
		if err != nil || e.ID != brokerbench.NewEvent(40+i).ID {
			t.Errorf("body %d is %s, %v", i, body, err)
		}
	}
}
