package history

import (
	"net/http"
	"slices"
	"time"
)

// CheckRestore checks R20: after a restore the database has another history, and clients with an older cursor learn of it.
// A Shoot of a lost cluster is reported and never deleted. A Shoot with lost changes is reported by preflight and by its
// sync, and replaced only with the permission of an operator.
func CheckRestore(_ Config, records []Record) Result {
	res := Result{Promise: "R20 nothing stale after a restore"}
	r := findRestore(records)
	if r == nil {
		res.fail("no restore was completed")
		return res
	}
	res.Checked += 2
	if r.HistoryBefore == "" || r.HistoryAfter == "" || r.HistoryBefore == r.HistoryAfter {
		res.fail("the database has the history %q before the restore, and %q after it", r.HistoryBefore, r.HistoryAfter)
	}
	if r.WatchStatus != http.StatusGone {
		res.fail("a watch with a cursor from before the restore got the status %d, want %d", r.WatchStatus, http.StatusGone)
	}
	checkMissingShoots(&res, r)
	after := newAfterRestore(r, records)
	for _, w := range after.writes {
		res.Checked++
		if after.endedHistories[w.History] {
			res.fail("Shoot %s was written at %s for the history %s, which had ended", w.Shoot, stamp(w.End), w.History)
		}
	}
	for i := range r.Shoots {
		s := &r.Shoots[i]
		kept, isKept := r.Kept[s.ClusterID]
		switch {
		case s.Deleting || isKept && kept.Deleting:
			// Its end was in progress already.
		case r.isOrphan(s):
			res.Checked++
			after.checkOrphan(&res, s)
		case isKept && s.Generation > kept.SyncGeneration:
			res.Checked++
			after.checkLostChangeHandled(&res, s, slices.Contains(r.Preflight, s.ClusterID))
		}
	}
	return res
}

// checkMissingShoots checks that preflight lists each cluster whose Shoot was deleted after the backup, and no other one.
// A Shoot that was being deleted can be gone or not when preflight looks for it.
func checkMissingShoots(res *Result, r *Restore) {
	existing, dying := map[string]bool{}, map[string]bool{} // by cluster
	for i := range r.Shoots {
		existing[r.Shoots[i].ClusterID] = !r.Shoots[i].Deleting
		dying[r.Shoots[i].ClusterID] = r.Shoots[i].Deleting
	}
	for id, kept := range r.Kept {
		if !kept.HasShoot || kept.Deleting || existing[id] || dying[id] {
			continue
		}
		res.Checked++
		if !slices.Contains(r.Missing, id) {
			res.fail("cluster %s has no Shoot after the restore, and preflight did not say so", id)
		}
	}
	for _, id := range r.Missing {
		res.Checked++
		kept, isKept := r.Kept[id]
		switch {
		case existing[id]:
			res.fail("cluster %s has a Shoot after the restore, and preflight lists it as missing", id)
		case !isKept || kept.Deleting || !kept.HasShoot:
			res.fail("preflight lists the Shoot of cluster %s as missing, which is not expected to have one", id)
		}
	}
}

// An afterRestore is what happened after a restore.
type afterRestore struct {
	clusters    map[string]bool      // at the end, by id
	shoots      map[string]bool      // at the end and not in deletion, by UID
	orphans     map[string]bool      // that were reported as of another history, by UID
	lostChanges map[string]bool      // that a sync has reported, by cluster
	overwrites  map[string]time.Time // the first permission, by cluster
	writes      map[string]*Write    // the first write that changed or created a Shoot, by UID
	deletions   map[string]*Write    // by name of the Shoot

	endedHistories map[string]bool // a failover begins another one, too
}

func newAfterRestore(r *Restore, records []Record) *afterRestore {
	a := &afterRestore{
		clusters: map[string]bool{}, shoots: map[string]bool{}, orphans: map[string]bool{}, lostChanges: map[string]bool{},
		overwrites: map[string]time.Time{}, writes: map[string]*Write{}, deletions: map[string]*Write{},
		endedHistories: map[string]bool{},
	}
	before := map[string]*Write{} // the last write before the restore, by UID
	for _, w := range successfulWritesInOrder(records) {
		last := before[w.UID]
		isConfirmation := last != nil && w.Changed == last.Changed && w.History == last.History // of a deletion
		switch {
		case !r.isAfter(w.Start):
			before[w.UID], a.endedHistories[w.History] = w, true
		case w.Verb != "delete" && !isConfirmation:
			a.addWrite(w)
		}
	}
	for _, o := range records {
		switch {
		case o.Cluster != nil:
			a.clusters[o.Cluster.ID] = true
		case o.Shoot != nil && !o.Shoot.Deleting:
			a.shoots[o.Shoot.UID] = true
		case o.Orphan != nil && o.Orphan.FromOtherHistory:
			a.orphans[o.Orphan.UID] = true
		case o.LostChange != nil:
			a.lostChanges[o.LostChange.ClusterID] = true
		case o.Overwrite != nil:
			if first, ok := a.overwrites[o.Overwrite.ClusterID]; !ok || o.Overwrite.Start.Before(first) {
				a.overwrites[o.Overwrite.ClusterID] = o.Overwrite.Start
			}
		case o.Write != nil && o.Write.Verb == "delete" && o.Write.Status < 300 && r.isAfter(o.Write.Start):
			a.deletions[o.Write.Shoot] = o.Write
		}
	}
	return a
}

func (a *afterRestore) addWrite(w *Write) {
	if first := a.writes[w.UID]; first == nil || w.Start.Before(first.Start) {
		a.writes[w.UID] = w
	}
}

// checkOrphan checks a Shoot whose cluster the database lost.
func (a *afterRestore) checkOrphan(res *Result, s *Shoot) {
	if w := a.deletions[s.Name]; w != nil {
		res.fail("Shoot %s of the lost cluster %s was deleted at %s", s.Name, s.ClusterID, stamp(w.End))
		return
	}
	if w := a.writes[s.UID]; w != nil {
		res.fail("Shoot %s of the lost cluster %s was changed at %s", s.Name, s.ClusterID, stamp(w.End))
	}
	if !a.shoots[s.UID] {
		res.fail("Shoot %s of the lost cluster %s is gone", s.Name, s.ClusterID)
	}
	if !a.orphans[s.UID] {
		res.fail("Shoot %s of the lost cluster %s was not reported as an orphan of another history", s.Name, s.ClusterID)
	}
}

// checkLostChangeHandled checks a Shoot that is newer than the backup. A user may have deleted its cluster meanwhile.
func (a *afterRestore) checkLostChangeHandled(res *Result, s *Shoot, isInPreflight bool) {
	permission, isPermitted := a.overwrites[s.ClusterID]
	if w := a.writes[s.UID]; w != nil && (!isPermitted || w.Start.Before(permission)) {
		res.fail("Shoot %s had generation %d before the restore, and was replaced with generation %d at %s without a permission",
			s.Name, s.Generation, w.Generation, stamp(w.End))
	}
	if !a.clusters[s.ClusterID] {
		return
	}
	if !isInPreflight {
		res.fail("Shoot %s has changes that the database lost, and preflight did not say so", s.Name)
	}
	if !a.lostChanges[s.ClusterID] {
		res.fail("Shoot %s has changes that the database lost, and no sync said so", s.Name)
	}
	if w := a.deletions[s.Name]; w != nil {
		res.fail("Shoot %s was deleted at %s, although its cluster exists", s.Name, stamp(w.End))
	}
}
