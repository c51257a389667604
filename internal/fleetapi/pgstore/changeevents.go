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
)

// Changes of clusters and node pools are recorded in the timeline in the same transaction. Neither
// exists without the other.

// lockedRow is a row as it was when it was locked.
type lockedRow struct {
	fleetapi.Record

	// locked is the row as given to the caller, who may have changed it since.
	locked *fleetapi.Locked
	// unsettled reports whether the saved status of a cluster lacks the current sync.
	unsettled bool
}

// changeActions names the change events of a kind.
type changeActions struct{ created, changed, deleted string }

// changeActionsFor returns the actions of a kind, and whether its changes are recorded at all.
func changeActionsFor(kind string) (names changeActions, recorded bool) {
	switch kind {
	case v1.KindCluster:
		return changeActions{changeevent.ActionClusterCreated, changeevent.ActionClusterChanged, changeevent.ActionClusterDeleted}, true
	case v1.KindNodePool:
		return changeActions{timeline.ActionNodePoolCreated, timeline.ActionNodePoolChanged, timeline.ActionNodePoolDeleted}, true
	}
	return changeActions{}, false
}

func (t *resourceTx) recordCreationEvent(ctx context.Context, created *fleetapi.Record) error {
	a, told := changeActionsFor(created.Kind)
	if !told {
		return nil
	}
	return t.insertChangeEvent(ctx, created, timeline.ResourceChange{Action: a.created, Who: created.CreatedBy, At: created.CreatedTime, Changes: diffSpecAndLabels(&fleetapi.Record{}, created)})
}

// recordUpdateEventIfAny records the changes of owners, and not the reports of adapters.
func (t *resourceTx) recordUpdateEventIfAny(ctx context.Context, updated, previous *fleetapi.Record) error {
	a, told := changeActionsFor(updated.Kind)
	if !told {
		return nil
	}
	var reason string
	switch {
	case updated.IsBeingDeleted() && !previous.IsBeingDeleted():
		reason = "its deletion was asked for"
	case updated.Generation != previous.Generation:
		reason = "its spec was changed"
	case !bytes.Equal(updated.Labels, previous.Labels):
		reason = "its labels were changed"
	default:
		return nil
	}
	return t.insertChangeEvent(ctx, updated, timeline.ResourceChange{
		Action: a.changed, Reason: reason, Who: updated.UpdatedBy, At: updated.UpdatedTime,
		Changes: diffSpecAndLabels(previous, updated), DeletionRequested: updated.IsBeingDeleted() && !previous.IsBeingDeleted(),
	})
}

// diffSpecAndLabels returns the fields of a row that owners changed.
func diffSpecAndLabels(before, after *fleetapi.Record) []changeevent.FieldChange {
	return append(timeline.DiffJSONFields("spec", before.Spec, after.Spec), timeline.DiffJSONFields("labels", before.Labels, after.Labels)...)
}

func (t *resourceTx) recordDeletionEvent(ctx context.Context, key fleetapi.Key) error {
	a, told := changeActionsFor(key.Kind)
	if !told {
		return nil
	}
	r := &t.was[key].locked.Record
	// The time is that of the last lock: this row may have been locked before its children were
	// removed.
	return t.insertChangeEvent(ctx, r, timeline.ResourceChange{Action: a.deleted, Who: r.DeletedBy, At: t.clock, Changes: diffSpecAndLabels(r, &fleetapi.Record{})})
}

// recordBatchCreationEvents records the inserted rows of a batch. It omits their content: there may be a million
// rows, and they can be read from the API.
func (t *resourceTx) recordBatchCreationEvents(ctx context.Context, batch *fleetapi.Batch, inserted []insertedRow) error {
	a, told := changeActionsFor(batch.Common.Kind)
	if !told || len(inserted) == 0 {
		return nil
	}
	names := make(map[string]string, len(batch.Rows))
	for i := range batch.Rows {
		names[batch.Rows[i].ID] = batch.Rows[i].Name
	}
	c := &batch.Common
	events := make([]timeline.Event, len(inserted))
	for i, row := range inserted {
		r := fleetapi.Record{Key: fleetapi.Key{Kind: c.Kind, ID: row.ID}, Content: fleetapi.Content{Name: names[row.ID]}, ParentID: c.ParentID, Tenant: c.Tenant, Generation: c.Generation, Revision: row.Revision}
		change, err := t.addResourceDetailsToChange(ctx, &r, timeline.ResourceChange{Action: a.created, Who: c.CreatedBy, At: c.CreatedTime})
		if err != nil {
			return err
		}
		if events[i], err = change.BuildEvent(); err != nil {
			return err
		}
	}
	return insertTimelineEvents(ctx, t.tx, events)
}

func (t *resourceTx) insertChangeEvent(ctx context.Context, record *fleetapi.Record, change timeline.ResourceChange) error {
	change, err := t.addResourceDetailsToChange(ctx, record, change)
	if err != nil {
		return err
	}
	event, err := change.BuildEvent()
	if err != nil {
		return err
	}
	return insertTimelineEvents(ctx, t.tx, []timeline.Event{event})
}

// addResourceDetailsToChange sets the fields of a change that describe its resource.
func (t *resourceTx) addResourceDetailsToChange(
	ctx context.Context, record *fleetapi.Record, change timeline.ResourceChange,
) (completed timeline.ResourceChange, err error) {
	change.Kind, change.ID, change.Name, change.Cluster, change.Tenant = record.Kind, record.ID, record.Name, record.Name, record.Tenant
	change.Generation, change.Revision = record.Generation, record.Revision
	if record.ParentID == "" {
		return change, nil
	}
	parent := fleetapi.Key{Kind: v1.KindCluster, ID: record.ParentID}
	if was, ok := t.was[parent]; ok {
		change.Cluster = was.Name
		return change, nil
	}
	err = t.tx.QueryRow(ctx, "select name from tenant.resources where id = $1 and kind = $2", parent.ID, parent.Kind).Scan(&change.Cluster)
	if errors.Is(err, pgx.ErrNoRows) {
		change.Cluster = "" // a row inserted by other software
		err = nil
	}
	if err != nil {
		return change, fmt.Errorf("read the name of the cluster of %s %q: %w", record.Kind, record.ID, err)
	}
	return change, nil
}
