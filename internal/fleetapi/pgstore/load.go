package pgstore

import (
	"context"
	"fmt"

	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// firstMissing selects the index of the first id without a row, from zero.
const firstMissing = `select u.place - 1 from unnest($1::uuid[]) with ordinality as u (id, place)
where not exists (select from tenant.resources r where r.id = u.id and r.kind = $2)
order by u.place limit 1`

var _ fleetapi.Loader = (*resourceTx)(nil)

// InsertRowsWithFreeNames inserts the rows of a batch whose names are free, and returns their number.
func (t *resourceTx) InsertRowsWithFreeNames(ctx context.Context, b *fleetapi.Batch) (insertedCount int, err error) {
	inserted, err := t.insertRowsWithFreeNames(ctx, &b.Common, b.Rows)
	if err != nil {
		return 0, fmt.Errorf("insert %d of kind %s: %w", len(b.Rows), b.Common.Kind, err)
	}
	return len(inserted), t.recordBatchCreationEvents(ctx, b, inserted)
}

// FindFirstNotInserted returns the index of the first row of a batch that was not inserted. Its name is in use.
func (t *resourceTx) FindFirstNotInserted(ctx context.Context, b *fleetapi.Batch) (index int, err error) {
	ids := make([]string, len(b.Rows))
	for i := range b.Rows {
		ids[i] = b.Rows[i].ID
	}
	if err := t.tx.QueryRow(ctx, firstMissing, ids, b.Common.Kind).Scan(&index); err != nil {
		return 0, fmt.Errorf("find existing names: %w", err)
	}
	return index, nil
}
