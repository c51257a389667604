package adapter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// TestReadyAfterOutage has the fleet API fail once, and then answer.
func TestReadyAfterOutage(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		fails     string           // the call that fails once
		then      map[string]error // of the calls afterwards
		reconcile time.Duration
		ready     bool
	}{
		"Gone":            {"a resource that is gone gets no report", "get", map[string]error{"get": apiError(404)}, 0, true},
		"GoneAfterReport": {"the same after a report that failed", "report", map[string]error{"get": apiError(404)}, 0, true},
		"Rejected":        {"the API answers", "get", map[string]error{"report": apiError(422)}, 0, true},
		"Slow":            {"no report is due yet", "statuses", nil, time.Hour, true},
		"Forbidden":       {"the adapter has lost its rights", "get", map[string]error{"get": apiError(403)}, 0, false},
		"Reports":         {"reads show nothing about reports", "report", map[string]error{"report": errDown}, 0, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fleet, broker := newFakeFleet(), newFakeBroker()
				failed := false
				fleet.err = func(call string) error {
					if !failed && call == tc.fails {
						failed = true
						return errDown
					}
					if !failed {
						return nil
					}
					return tc.then[call]
				}
				a := newAdapter(t, Config{Timeout: 2 * time.Hour, StopTimeout: -1}, func(ctx context.Context, _ Resource) (Report, error) {
					if failed {
						return Available("done"), backoff.Sleep(ctx, tc.reconcile)
					}
					return Available("done"), nil
				}, Deps{Consumer: broker, Fleet: fleet})
				start(t, a)
				broker.queue <- event("e1", "r1")
				synctest.Wait()
				if err := a.Ready(); !errors.Is(err, errDown) {
					t.Errorf("%s: Ready() during the outage = %v, want its error", tc.reason, err)
				}
				time.Sleep(time.Minute)
				if err := a.Ready(); (err == nil) != tc.ready {
					t.Errorf("%s: Ready() = %v, want nil: %t", tc.reason, err, tc.ready)
				}
			})
		})
	}
}

// TestReportOutageDelaysGrow checks that successful reads do not shorten the retries of reports that fail.
func TestReportOutageDelaysGrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		fleet.err = func(call string) error {
			if call == "report" {
				return errDown
			}
			return nil
		}
		start(t, newAdapter(t, Config{}, available, Deps{Consumer: broker, Fleet: fleet}))
		broker.queue <- event("e1", "r1")
		time.Sleep(time.Hour)
		if _, _, returned := broker.counts(); returned > 90 {
			t.Errorf("%d attempts in an hour, want some 65", returned)
		}
	})
}

// A subscribedBroker can publish, but not receive.
type subscribedBroker struct{ refused error }

func (b subscribedBroker) Ready() error { return nil }

func (b subscribedBroker) SubscriptionReady(subscription string) error {
	if subscription != "adapter-dns" {
		return nil
	}
	return b.refused
}

func (b subscribedBroker) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (b subscribedBroker) Consume(ctx context.Context, _ string, _ func(context.Context, cloudevent.Event) error) error {
	<-ctx.Done()
	return nil
}

// TestReadyFollowsSubscription has a broker that is connected refuse the subscription.
func TestReadyFollowsSubscription(t *testing.T) {
	t.Parallel()
	refused := errors.New("the queue belongs to another connection")
	synctest.Test(t, func(t *testing.T) {
		env := map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": "nats://localhost"}
		a := newAdapter(t, Config{}, available, Deps{
			Fleet: newFakeFleet(), Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		})
		a.broker.client = subscribedBroker{refused: refused}
		start(t, a)
		synctest.Wait()
		if err := a.Ready(); !errors.Is(err, refused) {
			t.Errorf("Ready() = %v, want that of the subscription", err)
		}
	})
}
