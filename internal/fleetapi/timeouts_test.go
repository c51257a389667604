package fleetapi_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// A timeoutStore is a store whose statements take too long.
type timeoutStore struct{ fleetapi.Store }

func (timeoutStore) Get(context.Context, fleetapi.Scope, fleetapi.Key) (fleetapi.Record, error) {
	return fleetapi.Record{}, fmt.Errorf("read: %w", fleetapi.ErrStatementTimeout)
}

func (timeoutStore) RunInTx(context.Context, fleetapi.Scope, func(context.Context, fleetapi.Tx) error) error {
	return fmt.Errorf("load: %w", fleetapi.ErrStatementTimeout)
}

// TestStatementTimeout checks that a request that takes too long is no internal error. The delay until the next attempt is
// more than the 30 seconds that package client waits.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	f := newFixtureWith(t, options{cfg: defaults(), store: func(s fleetapi.Store) fleetapi.Store { return timeoutStore{s} }})
	for _, a := range []*answer{f.do("GET", "clusters/"+nobody, nil), f.load("clusters/bulk", line("c-one"))} {
		a.problem(http.StatusServiceUnavailable, "unavailable", "took too long in the database; ask for less")
		wantEqual(t, "delay", "60", a.header.Get("Retry-After"))
	}
}
