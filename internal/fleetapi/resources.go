package fleetapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// maxAdapters limits the adapters that report on one resource. Without it, a reporter could fill the table with names.
const maxAdapters = 64

// resourceService implements the rules by which rows are created, changed and removed. The store carries them out.
type resourceService struct {
	store   Store
	kinds   map[string]*kind // by name
	schemas *schemaCache
}

// An author is the caller who changes rows, with the tenant of the rows it creates.
type author struct {
	scope   Scope
	subject string
	tenant  string
}

// createResource creates a resource below a parent, "" for a top-level kind.
func (rs *resourceService) createResource(ctx context.Context, by author, k *kind, parentID string, content Content) (Record, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Record{}, fmt.Errorf("make an id: %w", err)
	}
	guarded, err := rs.deletionWaitsForShoot(ctx, k)
	if err != nil {
		return Record{}, err
	}
	var created Record
	err = rs.store.RunInTx(ctx, by.scope, func(ctx context.Context, tx Tx) error {
		now, err := tx.ReadBeginTime(ctx)
		if err != nil {
			return err
		}
		row := Locked{Now: now, Shoot: ShootState{Guarded: guarded}, Record: Record{
			Key:      Key{k.name, id.String()},
			Content:  content,
			ParentID: parentID,
		}}
		if err := rs.initRowAndLockParent(ctx, tx, by, k, &row); err != nil {
			return err
		}
		if err := rs.schemas.checkSpecAgainstSchema(ctx, tx, k, content.Spec); err != nil {
			return err
		}
		err = tx.InsertAndRecordResource(ctx, &row.Record)
		if errors.Is(err, ErrNameTaken) {
			return newNameTakenError(k, content.Name)
		}
		created = row.Record
		return err
	})
	return created, err
}

func newNameTakenError(k *kind, name string) error {
	return rest.NewError(rest.CodeNameTaken, "a %s named %q already exists", k.name, name)
}

// initRowAndLockParent sets the fields that a new row takes from its kind and its parent. It locks the parent,
// so that the parent stays until the row exists.
func (rs *resourceService) initRowAndLockParent(ctx context.Context, tx Tx, by author, k *kind, row *Locked) error {
	r := &row.Record
	r.Kind, r.Tenant = k.name, by.tenant
	if k.parent != nil {
		parent, err := tx.LockAndReadResource(ctx, Key{k.parent.name, r.ParentID})
		if errors.Is(err, ErrNotFound) {
			return rest.NewError(rest.CodeNotFound, "no %s %q", k.parent.name, r.ParentID)
		}
		if err != nil {
			return err
		}
		if parent.Record.IsBeingDeleted() {
			return rest.NewError(rest.CodeBeingDeleted, "%s %q is being deleted; nothing can be created in it", k.parent.name, r.ParentID)
		}
		r.Tenant, row.Now = parent.Record.Tenant, parent.Now
	}
	if err := requireTenant(by, k, r.Tenant); err != nil {
		return err
	}
	r.Generation = 1
	r.CreatedTime, r.UpdatedTime = row.Now, row.Now
	r.CreatedBy, r.UpdatedBy = by.subject, by.subject
	return k.recomputeStatus(row)
}

// A patch holds the new values of a resource; nil leaves a value unchanged.
type patch struct {
	labels      json.RawMessage
	annotations json.RawMessage
	spec        json.RawMessage
	// match is the condition on the current revision of the row.
	match rest.ETagList
}

// updateResource replaces labels, annotations and spec. The generation rises if the meaning of the spec changes.
// An update that changes nothing writes nothing.
func (rs *resourceService) updateResource(ctx context.Context, by author, k *kind, id string, changes patch) (Record, error) {
	var updated *Record // its revision is known when the transaction commits
	wanted := rowTarget{scope: by.scope, kind: k, id: id, checksSpec: changes.spec != nil}
	err := rs.runWithRowLocked(ctx, wanted, func(ctx context.Context, tx Tx, t *lockedTarget) error {
		r := &t.Record
		if err := checkIfMatch(r, changes.match); err != nil {
			return err
		}
		if r.IsBeingDeleted() {
			return rest.NewError(rest.CodeBeingDeleted, "%s %q is being deleted and cannot be changed", k.name, id)
		}
		before := *r
		specChanged := changes.applyChangesTo(r)
		metadataChanged := !bytes.Equal(r.Labels, before.Labels) || !bytes.Equal(r.Annotations, before.Annotations)
		if !specChanged && !metadataChanged {
			updated = &before
			return nil
		}
		updated = r
		if specChanged {
			if err := rs.schemas.checkSpecAgainstSchema(ctx, tx, k, changes.spec); err != nil {
				return err
			}
			r.Generation++
		}
		r.UpdatedTime, r.UpdatedBy = t.Now, by.subject
		if err := k.recomputeStatus(t.Locked); err != nil {
			return err
		}
		return tx.SaveLockedResource(ctx, r, nil)
	})
	if err != nil {
		return Record{}, err
	}
	return *updated, nil
}

// checkIfMatch refuses to change a row that differs from the revision the client has seen.
func checkIfMatch(record *Record, ifMatch rest.ETagList) error {
	if ifMatch.SatisfiesIfMatch(computeETag(record)) {
		return nil
	}
	return rest.NewError(rest.CodePreconditionFailed, "%s %q has changed; read it again and retry", record.Kind, record.ID)
}

// requestDeletion requests the deletion of a resource. The row stays until its adapters have finalised and its children
// are gone, which may be at once. A repeated request changes nothing, but checks whether the row can be removed now,
// because the adapters it waited for may no longer be required.
func (rs *resourceService) requestDeletion(ctx context.Context, by author, k *kind, id string, ifMatch rest.ETagList) (Record, error) {
	var deleted *Record // its revision is known when the transaction commits
	err := rs.runWithRowLocked(ctx, rowTarget{scope: by.scope, kind: k, id: id}, func(ctx context.Context, tx Tx, t *lockedTarget) error {
		if err := checkIfMatch(&t.Record, ifMatch); err != nil {
			return err
		}
		deleted = &t.Record
		if t.Record.IsBeingDeleted() {
			if k.isDeletionComplete(t.Locked) {
				return rs.removeRowAndUpdateParent(ctx, tx, t)
			}
			return nil
		}
		if k.children {
			if err := rs.requestOrRefuseChildDeletion(ctx, by, tx, t.Locked); err != nil {
				return err
			}
		}
		markDeletionRequested(t.Locked, by)
		return rs.recomputeAndSaveOrRemove(ctx, tx, k, t, nil)
	})
	if err != nil {
		return Record{}, err
	}
	return *deleted, nil
}

func (rs *resourceService) requestOrRefuseChildDeletion(ctx context.Context, by author, tx Tx, parent *Locked) error {
	children, err := tx.LockAndReadChildren(ctx, parent.Record.Key)
	if err != nil {
		return err
	}
	parent.Children = len(children)
	for i := range children {
		child := &lockedTarget{Locked: &children[i], parent: parent}
		k := rs.kinds[child.Record.Kind]
		if k == nil {
			return fmt.Errorf("delete child %q: no kind %q", child.Record.ID, child.Record.Kind)
		}
		if k.onParentDelete == Restrict {
			return rest.NewError(
				rest.CodeHasChildren,
				"%s %q still has %d %s; delete them first",
				parent.Record.Kind,
				parent.Record.ID,
				len(children),
				k.collection,
			)
		}
		if child.Record.IsBeingDeleted() {
			continue
		}
		markDeletionRequested(child.Locked, by)
		if err := rs.recomputeAndSaveOrRemove(ctx, tx, k, child, nil); err != nil {
			return err
		}
	}
	return nil
}

func markDeletionRequested(row *Locked, by author) {
	row.Record.Generation++
	row.Record.DeletedTime, row.Record.DeletedBy = row.Now, by.subject
	row.Record.UpdatedTime, row.Record.UpdatedBy = row.Now, by.subject
}

// forceRemoveDeletingResource removes a row that is being deleted, and its children, without waiting for adapters.
func (rs *resourceService) forceRemoveDeletingResource(ctx context.Context, by author, k *kind, id string) error {
	return rs.runWithRowLocked(ctx, rowTarget{scope: by.scope, kind: k, id: id}, func(ctx context.Context, tx Tx, t *lockedTarget) error {
		if !t.Record.IsBeingDeleted() {
			return rest.NewError(rest.CodeNotBeingDeleted, "%s %q is not being deleted; delete it first", k.name, id)
		}
		children, err := tx.LockAndReadChildren(ctx, t.Record.Key)
		if err != nil {
			return err
		}
		for i := range children {
			if err := tx.DeleteAndRecordResource(ctx, children[i].Record.Key); err != nil {
				return err
			}
		}
		return rs.removeRowAndUpdateParent(ctx, tx, t)
	})
}

// decideAndStoreReport stores a valid report of an adapter. The returned status is meaningful only if the
// report was stored.
func (rs *resourceService) decideAndStoreReport(
	ctx context.Context, scope Scope, k *kind, id string, report v1.Report,
) (status v1.AdapterStatus, verdict ReportVerdict, err error) {
	err = rs.runWithRowLocked(ctx, rowTarget{scope: scope, kind: k, id: id}, func(ctx context.Context, tx Tx, t *lockedTarget) error {
		last := findReport(t.Reports, report.Adapter)
		isAdditional := last == nil && !slices.Contains(k.listRequiredAdapters(t.Locked), report.Adapter)
		if isAdditional && len(t.Reports) >= maxAdapters {
			return rest.NewError(rest.CodeTooManyAdapters, "%s %q already has reports from %d adapters, the maximum; only required adapters can still report",
				k.name, id, len(t.Reports))
		}
		status, verdict = DecideReport(report, last, t.Record.Generation, t.Now)
		if verdict != ReportStored {
			return nil
		}
		if last != nil {
			*last = status
		} else {
			t.Reports = append(t.Reports, status)
		}
		return rs.recomputeAndSaveOrRemove(ctx, tx, k, t, &status)
	})
	return status, verdict, err
}

// recomputeAndSaveOrRemove computes and saves the status of a changed row, or removes the row if its deletion
// is complete.
func (rs *resourceService) recomputeAndSaveOrRemove(
	ctx context.Context, tx Tx, k *kind, changed *lockedTarget, newReport *v1.AdapterStatus,
) error {
	if err := k.recomputeStatus(changed.Locked); err != nil {
		return err
	}
	if k.isDeletionComplete(changed.Locked) {
		return rs.removeRowAndUpdateParent(ctx, tx, changed)
	}
	return tx.SaveLockedResource(ctx, &changed.Record, newReport)
}

// removeRowAndUpdateParent removes the row. It then checks its parent, whose deletion may have waited only for
// this row.
func (rs *resourceService) removeRowAndUpdateParent(ctx context.Context, tx Tx, row *lockedTarget) error {
	if err := tx.DeleteAndRecordResource(ctx, row.Record.Key); err != nil {
		return err
	}
	if row.parent == nil {
		return nil
	}
	row.parent.Children--
	if !row.parent.Record.IsBeingDeleted() {
		return nil
	}
	return rs.recomputeAndSaveOrRemove(ctx, tx, rs.kinds[row.parent.Record.Kind], &lockedTarget{Locked: row.parent}, nil)
}

func (k *kind) recomputeStatus(row *Locked) error {
	r := &row.Record
	previous := v1.Status{
		Phase:              r.Status.Phase,
		ObservedGeneration: r.Status.ObservedGeneration,
		LastUpdatedTime:    r.Status.LastUpdatedTime,
		LastTransitionTime: r.Status.LastTransitionTime,
	}
	if len(r.Status.Conditions) > 0 {
		if err := json.Unmarshal(r.Status.Conditions, &previous.Conditions); err != nil {
			return fmt.Errorf("read conditions of %s %q: %w", r.Kind, r.ID, err)
		}
	}
	s := AggregateStatus(k.newStatusFacts(row, previous))
	var conditions bytes.Buffer
	encoder := json.NewEncoder(&conditions)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s.Conditions); err != nil {
		return fmt.Errorf("write conditions of %s %q: %w", r.Kind, r.ID, err)
	}
	r.Status.Phase, r.Status.ObservedGeneration = s.Phase, s.ObservedGeneration
	r.Status.LastUpdatedTime, r.Status.LastTransitionTime = s.LastUpdatedTime, s.LastTransitionTime
	r.Status.Conditions = bytes.TrimSpace(conditions.Bytes())
	return nil
}

func (k *kind) isDeletionComplete(row *Locked) bool {
	return IsDeletionComplete(k.newStatusFacts(row, v1.Status{}))
}

func (k *kind) newStatusFacts(row *Locked, previous v1.Status) StatusFacts {
	return StatusFacts{
		Generation:  row.Record.Generation,
		Deleting:    row.Record.IsBeingDeleted(),
		Children:    row.Children,
		CreatedTime: row.Record.CreatedTime,
		UpdatedTime: row.Record.UpdatedTime,
		Required:    k.listRequiredAdapters(row),
		Reports:     row.listReportsWithShoot(previous),
		Previous:    previous,
		Now:         row.Now,
	}
}
