package fleetapi_test

import (
	"context"
	"testing"

	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// A slowStore is the store of an API that is overtaken after it has listed clusters.
type slowStore struct {
	fleetapi.Store

	overtake func(context.Context) error
}

func (s slowStore) ListClustersWithUnsavedSync(ctx context.Context, after string, limit int) ([]string, error) {
	ids, err := s.Store.ListClustersWithUnsavedSync(ctx, after, limit)
	if err == nil {
		err = s.overtake(ctx)
	}
	return ids, err
}

// TestStatusIsUpdatedOnce checks that of two APIs which find a changed sync, only one saves the status.
func TestStatusIsUpdatedOnce(t *testing.T) {
	first := newFixture(t)
	slow := newFixtureWith(t, options{
		cfg: defaults(), database: first.database,
		store: func(s fleetapi.Store) fleetapi.Store { return slowStore{s, first.api.UpdateClusterStatuses} },
	})
	id := first.create("clusters", "c-one", nil).ID
	conn := first.connect()
	countChanges := func() (n int) {
		if err := conn.QueryRow(t.Context(), "select count(*) from tenant.resource_changes where id = $1", id).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	setSync(t, conn, id, "report_version = report_version + 1")
	before := countChanges()
	for range 2 {
		if err := slow.api.UpdateClusterStatuses(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantEqual(t, "changes by both", 1, countChanges()-before)
}
