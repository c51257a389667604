package pgstore

import (
	"cmp"
	"encoding/json"
	"slices"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
)

// Claims, rows and results are converted to and from columns here, apart from the statements.

// toClaim converts a row to the type of the worker. It parses no spec, so every row can
// be read.
func toClaim(row *db.ReadClaimedRow) clusterworker.Claim {
	c := clusterworker.Claim{
		ClusterID:         row.ClusterID,
		Token:             row.Token,
		Generation:        row.Generation,
		ClusterGeneration: row.ClusterGeneration,
		Attempts:          int(row.SyncAttempts),
		LastClass:         clusterworker.ErrorClass(row.ErrorClass),
		UnsyncedSince:     row.UnsyncedSince.Time.UTC(),
		Tenant:            row.Tenant,
		Name:              row.Name,
		Spec:              row.Spec,
		Deleting:          row.Deleting,
		ShootName:         row.ShootName,
		ShootUID:          row.ShootUID,
		ReportedShootUID:  row.ReportedShootUID,
		SyncedGeneration:  row.SyncedGeneration,
		ShootGeneration:   row.ShootGeneration,
		History:           row.History,
	}
	// Without them, a Shoot of another history is not changed.
	_ = json.Unmarshal(row.Sent, &c.Sent)
	if n := len(row.PoolIDs); n > 0 {
		c.Pools = make([]clusterworker.Pool, n)
		for i, id := range row.PoolIDs {
			c.Pools[i] = clusterworker.Pool{ID: id, Name: row.PoolNames[i], Spec: json.RawMessage(row.PoolSpecs[i])}
		}
	}
	return c
}

// toRow converts a row to the type of the worker.
func (r *syncRow) toRow() clusterworker.Row {
	return clusterworker.Row{
		ClusterID:         r.ClusterID,
		Tenant:            r.Tenant,
		Name:              r.Name,
		Generation:        r.Generation,
		SyncedGeneration:  r.SyncedGeneration,
		ClusterGeneration: r.ClusterGeneration,
		Synced:            r.Synced.Valid,
		Deleting:          r.Deleting,
		DeletionSent:      r.DeletionSent,
		SyncError:         derefOrEmpty(r.SyncError),
		ErrorClass:        clusterworker.ErrorClass(derefOrEmpty(r.ErrorClass)),
		Attempts:          int(r.SyncAttempts),
		ShootName:         derefOrEmpty(r.ShootName),
		ShootUID:          derefOrEmpty(r.ShootUID),
		ShootGeneration:   r.ShootGeneration,
		ReadyOnce:         r.ReadyOnce,
		Status:            v1.ShootStatus(derefOrEmpty(r.ShootStatus)),
		StatusMessage:     derefOrEmpty(r.ShootStatusMessage),
		StatusUpdated:     finiteTimeOrNil(r.ShootStatusUpdated),
		StatusGeneration:  r.statusGenerationOrZero(),
		ReportVersion:     r.ReportVersion,
	}
}

// statusGenerationOrZero returns the generation that the status is about, 0 if a worker of the release before wrote
// the status.
func (r *syncRow) statusGenerationOrZero() int64 {
	at, updated := r.StatusGenerationAt, r.ShootStatusUpdated
	if r.StatusGeneration == nil || !at.Valid || !updated.Valid || !at.Time.Equal(updated.Time) {
		return 0
	}
	return *r.StatusGeneration
}

// SortResultsAndBuildArgs returns the arguments of db.Complete for results. It sorts the results by their ids,
// so that concurrent batches lock rows in the same order.
func SortResultsAndBuildArgs(results []clusterworker.Result, sinkNames, sinkTypes []string) (args []any, err error) {
	slices.SortFunc(results, func(a, b clusterworker.Result) int { return cmp.Compare(a.ClusterID, b.ClusterID) })
	n := len(results)
	a := db.CompleteParams{
		IDs: make([]string, n), Tokens: make([]int64, n), Generations: make([]int64, n), ClusterGenerations: make([]int64, n),
		Failed: make([]bool, n), Errors: make([]string, n), Classes: make([]string, n), Spend: make([]bool, n), Delays: make([]int64, n),
		Deleting: make([]bool, n), Absent: make([]bool, n), ShootUIDs: make([]string, n), ShootGenerations: make([]int64, n),
		Changes: make([]string, n),
	}
	for i := range results {
		r := &results[i]
		a.IDs[i] = r.ClusterID
		a.Tokens[i] = r.Token
		a.Generations[i] = r.Generation
		a.ClusterGenerations[i] = r.ClusterGeneration
		a.Spend[i] = r.CountsAttempt
		a.Deleting[i] = r.Deleting
		a.Absent[i] = r.Absent
		a.ShootUIDs[i] = sanitizeAndTruncateText(r.Applied.UID)
		a.ShootGenerations[i] = r.Applied.Generation
		if a.Changes[i], err = marshalChangeOrEmpty(r.Change); err != nil {
			return nil, err
		}
		if r.Err != nil {
			a.Failed[i] = true
			a.Errors[i] = sanitizeAndTruncateText(r.Err.Error())
			a.Classes[i] = sanitizeAndTruncateText(string(r.Class))
			a.Delays[i] = min(max(r.Delay, 0), maxDelay).Microseconds()
		}
	}
	return []any{
		a.IDs, a.Tokens, a.Generations, a.ClusterGenerations, a.Failed, a.Errors, a.Classes, a.Spend,
		a.Delays, a.Deleting, a.Absent, a.ShootUIDs, a.ShootGenerations, a.Changes, sinkNames, sinkTypes,
	}, nil
}
