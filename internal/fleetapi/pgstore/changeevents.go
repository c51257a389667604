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

// A lockedRow is a row that the transaction has locked.
type lockedRow struct {
	// stored is the row as it was when it was locked.
	stored fleetapi.Record
	// current is the row as given to the caller, who may have changed it since.
	current *fleetapi.Locked
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
	actions, recorded := changeActionsFor(created.Kind)
	if !recorded {
		return nil
	}
	return t.buildAndQueueChangeEvent(ctx, created, timeline.ResourceChange{
		Action: actions.created, Who: created.CreatedBy, At: created.CreatedTime, Changes: diffSpecAndLabels(&fleetapi.Record{}, created),
	})
}

// buildUpdateEventIfAny returns the event of a change by an owner, nil for a report of an adapter.
func (t *resourceTx) buildUpdateEventIfAny(ctx context.Context, updated, previous *fleetapi.Record) (*timeline.Event, error) {
	actions, recorded := changeActionsFor(updated.Kind)
	if !recorded {
		return nil, nil //nolint:nilnil // there is none
	}
	deletionRequested := updated.IsBeingDeleted() && !previous.IsBeingDeleted()
	var reason string
	switch {
	case deletionRequested:
		reason = "its deletion was asked for"
	case updated.Generation != previous.Generation:
		reason = "its spec was changed"
	case !bytes.Equal(updated.Labels, previous.Labels):
		reason = "its labels were changed"
	default:
		return nil, nil //nolint:nilnil // there is none
	}
	event, err := t.buildChangeEvent(ctx, updated, timeline.ResourceChange{
		Action: actions.changed, Reason: reason, Who: updated.UpdatedBy, At: updated.UpdatedTime, ReplacedRevision: previous.Revision,
		Changes: diffSpecAndLabels(previous, updated), DeletionRequested: deletionRequested,
	})
	return &event, err
}

// diffSpecAndLabels returns the fields of a row that owners changed.
func diffSpecAndLabels(before, after *fleetapi.Record) []changeevent.FieldChange {
	return append(timeline.DiffJSONFields("spec", before.Spec, after.Spec), timeline.DiffJSONFields("labels", before.Labels, after.Labels)...)
}

func (t *resourceTx) recordDeletionEvent(ctx context.Context, key fleetapi.Key) error {
	actions, recorded := changeActionsFor(key.Kind)
	if !recorded {
		return nil
	}
	deleted := &t.locked[key].current.Record
	return t.buildAndQueueChangeEvent(ctx, deleted, timeline.ResourceChange{
		Action: actions.deleted, Who: deleted.DeletedBy, Changes: diffSpecAndLabels(deleted, &fleetapi.Record{}),
		At: t.lastLockTime, // this row may have been locked before its children were removed
	})
}

// recordBatchCreationEvents records the inserted rows of a batch. It omits their content: there may be a million
// rows, and they can be read from the API.
func (t *resourceTx) recordBatchCreationEvents(ctx context.Context, batch *fleetapi.Batch, inserted []insertedRow) error {
	actions, recorded := changeActionsFor(batch.Common.Kind)
	if !recorded || len(inserted) == 0 {
		return nil
	}
	names := make(map[string]string, len(batch.Rows))
	for i := range batch.Rows {
		names[batch.Rows[i].ID] = batch.Rows[i].Name
	}
	created := batch.Common
	events := make([]timeline.Event, len(inserted))
	for i, row := range inserted {
		created.ID, created.Revision = row.ID, row.Revision
		created.Content = fleetapi.Content{Name: names[row.ID]}
		var err error
		events[i], err = t.buildChangeEvent(ctx, &created, timeline.ResourceChange{
			Action: actions.created, Who: created.CreatedBy, At: created.CreatedTime,
		})
		if err != nil {
			return err
		}
	}
	return insertTimelineEvents(ctx, t.tx, events)
}

func (t *resourceTx) buildAndQueueChangeEvent(ctx context.Context, record *fleetapi.Record, change timeline.ResourceChange) error {
	event, err := t.buildChangeEvent(ctx, record, change)
	if err == nil {
		t.queueChangeEvent(record, &event)
	}
	return err
}

func (t *resourceTx) queueChangeEvent(record *fleetapi.Record, event *timeline.Event) {
	nameFailure(
		t.tx.Queue(insertOwnEvents, buildInsertParams([]timeline.Event{*event})...),
		"store the change event of %s %q",
		record.Kind,
		record.ID,
	)
}

// buildChangeEvent returns the event of a change of a resource, whose details it adds to the change.
func (t *resourceTx) buildChangeEvent(
	ctx context.Context,
	record *fleetapi.Record,
	change timeline.ResourceChange,
) (timeline.Event, error) {
	cluster, err := t.readClusterName(ctx, record)
	if err != nil {
		return timeline.Event{}, fmt.Errorf("read the name of the cluster of %s %q: %w", record.Kind, record.ID, err)
	}
	change.Kind, change.ID, change.Name = record.Kind, record.ID, record.Name
	change.Cluster, change.Tenant = cluster, record.Tenant
	change.Generation, change.Revision = record.Generation, record.Revision
	return change.BuildEvent()
}

// readClusterName returns the name of a cluster, or of the cluster that a resource belongs to. If that is not locked, it
// takes a round trip.
func (t *resourceTx) readClusterName(ctx context.Context, record *fleetapi.Record) (name string, err error) {
	if record.ParentID == "" {
		return record.Name, nil
	}
	parent := fleetapi.Key{Kind: v1.KindCluster, ID: record.ParentID}
	if locked, ok := t.locked[parent]; ok {
		return locked.stored.Name, nil
	}
	err = t.tx.QueryRow(ctx, "select name from tenant.resources where id = $1 and kind = $2", parent.ID, parent.Kind).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil // a row inserted by other software
	}
	return name, err
}
