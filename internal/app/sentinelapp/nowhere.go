package sentinelapp

import (
	"context"
	"errors"
	"io"
	"net/url"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// discardBroker stands for the API and the broker while a configuration is checked.
type discardBroker struct{}

// errNowhere is what comes of using them.
var errNowhere = errors.New("not connected: only the configuration is checked")

// ListPage gives no page.
func (discardBroker) ListPage(context.Context, string, url.Values, []byte) ([]byte, error) {
	return nil, errNowhere
}

// ListPageIf gives no page.
func (discardBroker) ListPageIf(context.Context, string, url.Values, string, []byte) ([]byte, io.ReadCloser, string, error) {
	return nil, nil, "", errNowhere
}

// Watch tells nothing.
func (discardBroker) Watch(context.Context, string, url.Values, func(v1.WatchEvent) error) error {
	return errNowhere
}

// Publish publishes nothing.
func (discardBroker) Publish(context.Context, *cloudevent.Event) error { return errNowhere }

// InFlight is none.
func (discardBroker) InFlight() int { return 0 }

// Ready is never.
func (discardBroker) Ready() error { return errNowhere }
