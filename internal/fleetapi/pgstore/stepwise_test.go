package pgstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
)

// TestStepwise checks that a reader that resumes between two changes of a row learns of its
// relabelling.
func TestStepwise(t *testing.T) {
	d := newDatabase(t)
	a, b := newRecord("a", v1.KindCluster, "row-a"), newRecord("a", v1.KindCluster, "row-b")
	insert(t, d.Store, a, b)
	begin, err := d.ReadLatestCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	relabel(t, d.Store, a, `{"zone":"x"}`)
	touch(t, d.Store, a)
	relabel(t, d.Store, a, `{"zone":"y"}`)
	touch(t, d.Store, b)
	touch(t, d.Store, a)
	touch(t, d.Store, a)

	visit := func(q fleetapi.ChangeQuery) (told []string, at []fleetapi.ChangeQuery) {
		q.Kind, q.Limit = v1.KindCluster, 100
		_, _, err := d.VisitChanges(t.Context(), all(), q, func(c *fleetapi.Change) error {
			told = append(told, fmt.Sprint(c.Record.Name, " ", c.Relabelled))
			next := q
			next.After.Position = c.At
			at = append(at, next)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return told, at
	}
	told, _ := visit(fleetapi.ChangeQuery{After: begin})
	wantTold(t, "once each", []string{"row-b false", "row-a true"}, told)
	told, at := visit(fleetapi.ChangeQuery{After: begin, Stepwise: true})
	wantTold(t, "stepwise", []string{"row-a true", "row-b false", "row-a false"}, told)
	for i := range at {
		rest, _ := visit(at[i])
		wantTold(t, "from there on", told[i+1:], append([]string{}, rest...))
	}
}

func wantTold(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func relabel(t *testing.T, s *pgstore.Store, r *fleetapi.Record, labels string) {
	t.Helper()
	err := s.RunInTx(t.Context(), all(), func(ctx context.Context, tx fleetapi.Tx) error {
		l, err := tx.LockAndReadResource(ctx, r.Key)
		if err != nil {
			return err
		}
		l.Record.Labels = json.RawMessage(labels)
		return tx.SaveLockedResource(ctx, &l.Record, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
}
