package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	timelinestore "github.com/fleetloop/fleetloop/internal/fleetapi/timeline/pgstore"
)

// Changes of clusters and node pools are recorded in the timeline in the same transaction. Neither
// exists without the other.

// before is a row as it was when it was locked.
type before struct {
	fleetapi.Record

	// locked is the row as given to the caller, who may have changed it since.
	locked *fleetapi.Locked
	// unsettled reports whether the saved status of a cluster lacks the current sync.
	unsettled bool
}

// actions names the change events of a kind.
type actions struct{ created, changed, deleted string }

// actionsOf returns the actions of a kind, and whether its changes are recorded at all.
func actionsOf(kind string) (actions, bool) {
	switch kind {
	case v1.KindCluster:
		return actions{changeevent.ActionClusterCreated, changeevent.ActionClusterChanged, changeevent.ActionClusterDeleted}, true
	case v1.KindNodePool:
		return actions{timeline.ActionNodePoolCreated, timeline.ActionNodePoolChanged, timeline.ActionNodePoolDeleted}, true
	}
	return actions{}, false
}

func (t *tx) recordCreation(ctx context.Context, r *fleetapi.Record) error {
	a, told := actionsOf(r.Kind)
	if !told {
		return nil
	}
	return t.recordChange(ctx, r, timeline.ResourceChange{Action: a.created, Who: r.CreatedBy, At: r.CreatedTime, Changes: diffRecords(&fleetapi.Record{}, r)})
}

// recordOwnerChange records the changes of owners, and not the reports of adapters.
func (t *tx) recordOwnerChange(ctx context.Context, r, was *fleetapi.Record) error {
	a, told := actionsOf(r.Kind)
	if !told {
		return nil
	}
	var reason string
	switch {
	case r.Deleting() && !was.Deleting():
		reason = "its deletion was asked for"
	case r.Generation != was.Generation:
		reason = "its spec was changed"
	case !bytes.Equal(r.Labels, was.Labels):
		reason = "its labels were changed"
	default:
		return nil
	}
	return t.recordChange(ctx, r, timeline.ResourceChange{
		Action: a.changed, Reason: reason, Who: r.UpdatedBy, At: r.UpdatedTime,
		Changes: diffRecords(was, r), DeletionRequested: r.Deleting() && !was.Deleting(),
	})
}

// diffRecords returns the fields of a row that owners changed.
func diffRecords(was, is *fleetapi.Record) []changeevent.FieldChange {
	return append(timeline.DiffFields("spec", was.Spec, is.Spec), timeline.DiffFields("labels", was.Labels, is.Labels)...)
}

func (t *tx) recordDeletion(ctx context.Context, key fleetapi.Key) error {
	a, told := actionsOf(key.Kind)
	if !told {
		return nil
	}
	r := &t.was[key].locked.Record
	// The time is that of the last lock: this row may have been locked before its children were
	// removed.
	return t.recordChange(ctx, r, timeline.ResourceChange{Action: a.deleted, Who: r.DeletedBy, At: t.clock, Changes: diffRecords(r, &fleetapi.Record{})})
}

// recordBatchCreation records the inserted rows of a batch. It omits their content: there may be a million
// rows, and they can be read from the API.
func (t *tx) recordBatchCreation(ctx context.Context, b *fleetapi.Batch, inserted []insertedRow) error {
	a, told := actionsOf(b.Common.Kind)
	if !told || len(inserted) == 0 {
		return nil
	}
	names := make(map[string]string, len(b.Rows))
	for i := range b.Rows {
		names[b.Rows[i].ID] = b.Rows[i].Name
	}
	c := &b.Common
	events := make([]timeline.Event, len(inserted))
	for i, row := range inserted {
		r := fleetapi.Record{Key: fleetapi.Key{Kind: c.Kind, ID: row.ID}, Content: fleetapi.Content{Name: names[row.ID]}, ParentID: c.ParentID, Tenant: c.Tenant, Generation: c.Generation, Revision: row.Revision}
		change, err := t.completeChange(ctx, &r, timeline.ResourceChange{Action: a.created, Who: c.CreatedBy, At: c.CreatedTime})
		if err != nil {
			return err
		}
		if events[i], err = change.Event(); err != nil {
			return err
		}
	}
	return timelinestore.InsertInTx(ctx, t.tx, events)
}

func (t *tx) recordChange(ctx context.Context, r *fleetapi.Record, c timeline.ResourceChange) error {
	c, err := t.completeChange(ctx, r, c)
	if err != nil {
		return err
	}
	event, err := c.Event()
	if err != nil {
		return err
	}
	return timelinestore.InsertInTx(ctx, t.tx, []timeline.Event{event})
}

// completeChange sets the fields of a change that describe its resource.
func (t *tx) completeChange(ctx context.Context, r *fleetapi.Record, c timeline.ResourceChange) (timeline.ResourceChange, error) {
	c.Kind, c.ID, c.Name, c.Cluster, c.Tenant = r.Kind, r.ID, r.Name, r.Name, r.Tenant
	c.Generation, c.Revision = r.Generation, r.Revision
	if r.ParentID == "" {
		return c, nil
	}
	parent := fleetapi.Key{Kind: v1.KindCluster, ID: r.ParentID}
	if was, ok := t.was[parent]; ok {
		c.Cluster = was.Name
		return c, nil
	}
	err := t.tx.QueryRow(ctx, "select name from tenant.resources where id = $1 and kind = $2", parent.ID, parent.Kind).Scan(&c.Cluster)
	if errors.Is(err, pgx.ErrNoRows) {
		c.Cluster = "" // a row inserted by other software
		err = nil
	}
	if err != nil {
		return c, fmt.Errorf("read the name of the cluster of %s %q: %w", r.Kind, r.ID, err)
	}
	return c, nil
}
