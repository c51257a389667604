package history

import "time"

// A Restore is a restore of the database to a backup. What was acknowledged after the backup is lost by design.
type Restore struct {
	Backup time.Time `json:"backup"` // before the backup began
	Up     time.Time `json:"up"`     // before the first server used the restored database

	HistoryBefore string `json:"historyBefore"` // ids of the history of the database
	HistoryAfter  string `json:"historyAfter"`
	WatchStatus   int    `json:"watchStatus"` // of a watch that continues with a cursor from before

	Kept      map[string]Kept `json:"kept"`      // clusters and node pools in the backup, by id
	Shoots    []Shoot         `json:"shoots"`    // when the workers had stopped
	Preflight []string        `json:"preflight"` // ids of the clusters that preflight rejected
	Missing   []string        `json:"missing"`   // ids of the clusters whose Shoot preflight did not find
}

// A Kept is a cluster or a node pool as the backup has it.
type Kept struct {
	Generation     int64 `json:"generation"`
	SyncGeneration int64 `json:"syncGeneration,omitempty"` // of a cluster
	HasShoot       bool  `json:"hasShoot,omitempty"`       // a success of its sync is recorded
	Deleting       bool  `json:"deleting,omitempty"`
}

// An Orphan is a Shoot that a cluster-worker reported as an orphan.
type Orphan struct {
	UID              string `json:"uid"`
	FromOtherHistory bool   `json:"fromOtherHistory"`
}

// A LostChange is a failed sync that says that the Shoot has changes that the database lost.
type LostChange struct {
	ClusterID string `json:"clusterID"`
	Error     string `json:"error"`
}

// An Overwrite is the permission of an operator to replace the Shoot of a cluster.
type Overwrite struct {
	ClusterID string    `json:"clusterID"`
	Start     time.Time `json:"start"`
}

// findRestore returns the restore of a history, nil without one. The methods of nil say that nothing was lost.
func findRestore(records []Record) *Restore {
	for _, r := range records {
		if r.Restore != nil {
			return r.Restore
		}
	}
	return nil
}

// isInGap reports whether a time is after the backup and before the restored database was used.
func (r *Restore) isInGap(t time.Time) bool { return r != nil && !t.Before(r.Backup) && t.Before(r.Up) }

// isAfter reports whether a time belongs to the restored database.
func (r *Restore) isAfter(t time.Time) bool { return r != nil && !t.Before(r.Up) }

// get returns a cluster or a node pool as the backup has it.
func (r *Restore) get(id string) (kept Kept, ok bool) {
	if r != nil {
		kept, ok = r.Kept[id]
	}
	return kept, ok
}

// has reports whether the backup has a generation of a cluster or a node pool.
func (r *Restore) has(id string, generation int64) bool {
	kept, ok := r.get(id)
	return ok && generation <= kept.Generation
}

// hasLost reports whether a request was acknowledged, and the backup does not have its result.
func (r *Restore) hasLost(q *Request) bool {
	return r.isInGap(q.End) && !r.has(q.resource(), q.Generation)
}

// hasNew reports whether a request was acknowledged with a generation that began after the restore. A request that
// changes nothing gets the present one.
func (r *Restore) hasNew(q *Request) bool {
	return r.isAfter(q.End) && !r.has(q.resource(), q.Generation)
}

// hasUndone reports whether a deletion was attempted, and the backup has the resource as it was before.
func (r *Restore) hasUndone(q *Request) bool {
	if !r.isInGap(q.End) {
		return false
	}
	kept, ok := r.get(q.resource())
	return ok && !kept.Deleting
}

// The generations of a resource begin again at that of the backup.
const (
	keptGeneration = iota // in the backup
	lostGeneration        // of the history that ended
	newGeneration         // of the history that began
)

// partOf returns which of its two histories an event belongs to.
func (r *Restore) partOf(e *Event) int {
	switch {
	case r == nil || r.has(e.ClusterID, e.Generation):
		return keptGeneration
	case r.isAfter(e.Updated):
		return newGeneration
	}
	return lostGeneration
}

// isOrphan reports whether a Shoot belongs to a cluster that was created after the backup.
func (r *Restore) isOrphan(s *Shoot) bool {
	if r == nil {
		return false
	}
	if _, ok := r.get(s.ClusterID); ok {
		return false
	}
	for i := range r.Shoots {
		// The time of a creation has no fraction of a second.
		if was := &r.Shoots[i]; was.UID == s.UID {
			return !was.Created.Before(r.Backup.Truncate(time.Second))
		}
	}
	return false
}
