package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		m := publishComparison{Name: "broker.x", Want: 0.25, Ours: newConcurrentPublishFunc(ours), Theirs: theirs, Events: 2560}
		r, err := m.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := "ratio broker.x 0.50 want >= 0.25"; r.String() != want {
			t.Errorf("result %q, want %q", r, want)
		}
		if want := int64((publishTurns + 1) * 2560); published.Load() != want || most.Load() != publishWindow {
			t.Errorf("%d published, %d at once, want %d and %d", published.Load(), most.Load(), want, publishWindow)
		}
	})
}

func TestMatchStopsAtAFailure(t *testing.T) {
	broken := publisherFunc(func(context.Context, *cloudevent.Event) error { return errors.New("down") })
	m := publishComparison{Name: "broker.x", Ours: newConcurrentPublishFunc(broken), Theirs: newConcurrentPublishFunc(broken), Events: 10}
	if _, err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "ours") {
		t.Errorf("Run() = %v, want an error that says whose", err)
	}
}

func TestBodiesAreEvents(t *testing.T) {
	for i, body := range newPublishBodies(40, 3) {
		e, err := cloudevent.Parse(body)
		if err != nil || e.ID != newCloudEvent(40+i).ID {
			t.Errorf("body %d is %s, %v", i, body, err)
		}
	}
}

// BenchmarkPublish compares the adapter of each broker with its client library.
func BenchmarkPublish(b *testing.B) {
	type bed interface {
		NewAdapterSide() publishFunc
		PublishRaw(ctx context.Context, n, window int) error
		PurgeMessages(ctx context.Context) error
		Close()
	}
	for broker, open := range map[string]func(ctx context.Context, dir string) (bed, error){
		"RabbitMQ": func(ctx context.Context, _ string) (bed, error) {
			return startRabbitMQBed(ctx)
		},
		"NATS": func(ctx context.Context, dir string) (bed, error) { return startNATSBed(ctx, dir) },
	} {
		b.Run(broker, func(b *testing.B) {
			bed, err := open(b.Context(), b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer bed.Close()
			for name, side := range map[string]publishFunc{"Ours": bed.NewAdapterSide(), "Raw": bed.PublishRaw} {
				b.Run(name, func(b *testing.B) {
					b.ReportAllocs()
					if err := side(b.Context(), b.N, publishWindow); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
					if err := bed.PurgeMessages(b.Context()); err != nil {
						b.Fatal(err)
					}
				})
			}
		})
	}
}
