package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	// overwriteEvery is how often the operator looks for syncs that fail after a restore.
	overwriteEvery = 5 * time.Second
	lostMessage    = "the Shoot has changes that the database lost when it was restored"
	orphanMessage  = "orphan shoot found"
)

// A restoreRecorder records the restore and what follows it.
type restoreRecorder struct {
	write func(history.Record)

	mu          sync.Mutex
	records     []history.Record
	overwritten map[string]time.Time // by cluster
	orphans     map[string]bool      // by UID
}

func newRestoreRecorder(write func(history.Record)) *restoreRecorder {
	return &restoreRecorder{write: write, overwritten: map[string]time.Time{}, orphans: map[string]bool{}}
}

// add records something.
func (r *restoreRecorder) add(record history.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(record)
}

func (r *restoreRecorder) addLocked(record history.Record) {
	r.records = append(r.records, record)
	r.write(record)
}

// listRecords returns what was recorded so far, which is nothing before the restore.
func (r *restoreRecorder) listRecords() []history.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}

// recordOrphansFromLogs records the orphans in the logs of the cluster-workers, each once.
func (r *restoreRecorder) recordOrphansFromLogs(workers []*process) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range workers {
		text, err := os.ReadFile(p.logPath())
		if err != nil {
			return err
		}
		for line := range bytes.Lines(text) {
			if !bytes.Contains(line, []byte(orphanMessage)) {
				continue
			}
			var found struct {
				UID              string `json:"shoot_uid"`
				FromOtherHistory bool   `json:"from_other_history"`
			}
			if err := json.Unmarshal(line, &found); err != nil {
				return err
			}
			if !r.orphans[found.UID] {
				r.orphans[found.UID] = true
				r.addLocked(history.Record{Orphan: &history.Orphan{UID: found.UID, FromOtherHistory: found.FromOtherHistory}})
			}
		}
	}
	return nil
}

// isNewLoss reports whether a sync failed because of lost changes after the Shoot was overwritten, or it never was.
func (r *restoreRecorder) isNewLoss(s v1.ClusterSync) bool {
	if s.ErrorClass != string(shoot.ClassConflict) || !strings.Contains(s.Error, lostMessage) || s.LastAttempt == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.LastAttempt.After(r.overwritten[s.ClusterID])
}

// addOverwrites records lost changes, and that the operator has the Shoots replaced.
func (r *restoreRecorder) addOverwrites(failed []v1.ClusterSync, start time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range failed {
		r.overwritten[s.ClusterID] = start
		r.addLocked(history.Record{LostChange: &history.LostChange{ClusterID: s.ClusterID, Error: s.Error}})
		r.addLocked(history.Record{Overwrite: &history.Overwrite{ClusterID: s.ClusterID, Start: start}})
	}
}

// permitShootOverwritesUntilDone is the operator after a restore: it has each Shoot replaced whose sync says that the
// database lost changes.
func (r *planRun) permitShootOverwritesUntilDone(ctx context.Context) {
	for pauseFor(ctx, overwriteEvery) {
		if len(r.restored.listRecords()) == 0 {
			continue
		}
		if err := r.permitShootOverwrites(ctx); err != nil && ctx.Err() == nil {
			r.printProgress("overwrite Shoots: " + err.Error())
		}
	}
}

func (r *planRun) permitShootOverwrites(ctx context.Context) error {
	viewer, err := r.newClient("viewer")
	if err != nil {
		return err
	}
	defer viewer.CloseIdle()
	var failed []v1.ClusterSync
	var ids []string
	for s, err := range viewer.Syncs().List(ctx, fleetclient.SyncOptions{States: []v1.SyncState{v1.SyncPending, v1.SyncBackingOff, v1.SyncStuck}}) {
		if err != nil {
			return err
		}
		if r.restored.isNewLoss(s) {
			failed, ids = append(failed, s), append(ids, s.ClusterID)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	commands, err := readRestoreCommands(r.latest.source)
	if err != nil {
		return err
	}
	// The permission is recorded first, because a command that fails may have taken effect.
	r.restored.addOverwrites(failed, time.Now())
	return r.runShellOnPrimary(ctx, commands.overwriteClusters(ids))
}
