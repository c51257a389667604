package brokertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// WantSubscriptionReason waits until a subscription of b returns its reason for not being ready.
func WantSubscriptionReason(t *testing.T, b Broker, subscription, part string) {
	t.Helper()
	Eventually(t, "the reason "+part, func() error {
		if err := b.SubscriptionReady(subscription); err == nil || !strings.Contains(err.Error(), part) {
			return fmt.Errorf("SubscriptionReady() = %w, want %q in it", err, part)
		}
		return nil
	})
}

// WantSubscriptionReady waits until a subscription of b is ready.
func WantSubscriptionReady(t *testing.T, b Broker, subscription string) {
	t.Helper()
	Eventually(t, "subscribed", func() error { return b.SubscriptionReady(subscription) })
}

// testSubscriptionReady follows one subscription while another one is ready.
func testSubscriptionReady(t *testing.T, bed *Bed) {
	t.Helper()
	b, _ := bed.startSubscribedBroker(t, "")
	WantSubscriptionReason(t, b, "second", "not started")
	stop := StartConsumer(t, b, "second", func(context.Context, cloudevent.Event) error { return nil })
	WantSubscriptionReady(t, b, "second")
	WantSubscriptionReady(t, b, "collector")
	stop()
	WantSubscriptionReason(t, b, "second", "stopped")
	if err := b.SubscriptionReady("collector"); err != nil {
		t.Error(errors.Join(errors.New("the end of one subscription ended the other one"), err))
	}
}
