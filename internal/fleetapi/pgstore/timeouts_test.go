package pgstore_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// TestStatementTimeout checks the error of statements that wait for a lock for longer than the statement timeout.
func TestStatementTimeout(t *testing.T) {
	d := newTimelineDatabase(t)
	cfg := pgtest.Config(d.url)
	cfg.StatementTimeout = 50 * time.Millisecond
	pool, err := postgres.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	d.exec(t, "begin; lock table tenant.resources, timeline.change_event in access exclusive mode")
	resources, events := pgstore.New(pool), pgstore.NewTimelineStore(pool)
	key := fleetapi.Key{Kind: v1.KindCluster, ID: uuid.NewString()}
	_, read := resources.Get(t.Context(), all(), key)
	change := resources.RunInTx(t.Context(), all(), func(ctx context.Context, tx fleetapi.Tx) error {
		_, err := tx.LockAndReadResource(ctx, key)
		return err
	})
	_, list := events.List(t.Context(), allEvents(), timeline.Query{Limit: 1}, func(*timeline.Row) error { return nil })
	for what, err := range map[string]error{"read": read, "change": change, "list of events": list} {
		if !errors.Is(err, fleetapi.ErrStatementTimeout) || !errors.Is(err, timeline.ErrStatementTimeout) || errors.Is(err, fleetapi.ErrUnavailable) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
