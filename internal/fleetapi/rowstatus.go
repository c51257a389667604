package fleetapi

import (
	"bytes"
	"encoding/json"
	"fmt"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// recomputeStatus computes the status of a row.
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

// isDeletionComplete reports whether the deletion of a row is complete.
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

func findReport(reports []v1.AdapterStatus, adapter string) *v1.AdapterStatus {
	for i := range reports {
		if reports[i].Adapter == adapter {
			return &reports[i]
		}
	}
	return nil
}
