package sentinelapp

import (
	"context"
	"errors"
	"io"
	"net/url"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// discardBroker replaces the API and the broker while a configuration is checked.
type discardBroker struct{}

// errNowhere is the error of every call to discardBroker.
var errNowhere = errors.New("not connected: only the configuration is checked")

// ListPage returns an error.
func (discardBroker) ListPage(context.Context, string, url.Values, []byte) ([]byte, error) {
	return nil, errNowhere
}

// ListPageIf returns an error.
func (discardBroker) ListPageIf(context.Context, string, url.Values, string, []byte) ([]byte, io.ReadCloser, string, error) {
	return nil, nil, "", errNowhere
}

// Watch returns an error.
func (discardBroker) Watch(context.Context, string, url.Values, func(v1.WatchEvent) error) error {
	return errNowhere
}

// Publish returns an error.
func (discardBroker) Publish(context.Context, *cloudevent.Event) error { return errNowhere }

// InFlight returns 0.
func (discardBroker) InFlight() int { return 0 }

// Ready returns an error.
func (discardBroker) Ready() error { return errNowhere }
