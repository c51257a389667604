package main

import (
	"bytes"
	"testing"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// TestTheFleetIsWhatItSays checks that the bare statement and the store read the same rows.
func TestTheFleetIsWhatItSays(t *testing.T) {
	url := pgtest.NewMigratedDatabaseURL(t)
	fleet := databaseFleet{Rows: 1000, Shards: 4, Tenants: 3}
	if err := loadFleet(t.Context(), url, fleet); err != nil {
		t.Fatal(err)
	}
	bare, err := openBareReader(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bare.Close(t.Context()) }()
	count, size, err := bare.ReadPage(t.Context(), "s1", fleet.ID(200), 100)
	if err != nil || count != 100 || size < 100*1000 {
		t.Errorf("%d rows of %d bytes, %v", count, size, err)
	}

	labels, err := selector.FromPairs([]selector.Pair{{Label: "shard", Value: "s1"}})
	if err != nil {
		t.Fatal(err)
	}
	store := pgstore.New(pgtest.Open(t, url))
	i := 201 // the first of shard 1 behind row 200
	_, err = store.List(t.Context(), fleetapi.Scope{All: true}, fleetapi.Query{
		Kind: v1.KindCluster, Labels: labels, After: fleetapi.Position{ID: fleet.ID(200).String()}, Limit: 100,
	}, func(r *fleetapi.Record) error {
		if r.ID != fleet.ID(i).String() || r.Tenant != fleet.Tenant(i) || uuid.MustParse(r.ID).Version() != 7 {
			t.Errorf("row %d is %s of %s", i, r.ID, r.Tenant)
		}
		i += 4
		return nil
	})
	if err != nil || i != 601 {
		t.Errorf("ended at row %d, %v", i, err)
	}
}

func TestWhatIsDumpedIsRestored(t *testing.T) {
	from, to := pgtest.NewMigratedDatabaseURL(t), pgtest.NewMigratedDatabaseURL(t)
	fleet := databaseFleet{Rows: 100}
	if err := loadFleet(t.Context(), from, fleet); err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if n, err := exportClusters(t.Context(), from, &first); n != 100 || err != nil {
		t.Fatalf("dumped %d, %v", n, err)
	}
	if n, err := importClusters(t.Context(), to, bytes.NewReader(first.Bytes())); n != 100 || err != nil {
		t.Fatalf("restored %d, %v", n, err)
	}
	if _, err := exportClusters(t.Context(), to, &second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("%d bytes became %d, %v", first.Len(), second.Len(), err)
	}
}
