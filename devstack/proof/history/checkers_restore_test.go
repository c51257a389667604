package history

import (
	"slices"
	"strings"
	"testing"
)

// newRestore returns a history of a restore without violations. The backup is from 10, and the restored database is in use
// from 20. Cluster a changed in between, b was created, and c was deleted. Afterwards a is edited, and gets generation 3
// again. An operator has its Shoot replaced.
func newRestore(more ...Record) []Record {
	return slices.Concat([]Record{
		{At: at(1), Request: &Request{Op: Create, Name: "blue-a", ClusterID: "a", Generation: 1, Start: at(0), End: at(1), Outcome: OK}},
		{At: at(2), Event: &Event{ID: "e1", ClusterID: "a", Generation: 2, Reason: "generation changed", Updated: at(1), Published: at(2)}},
		{At: at(2), Request: &Request{Op: Create, Name: "blue-c", ClusterID: "c", Generation: 1, Start: at(1), End: at(2), Outcome: OK}},
		{At: at(3), Event: &Event{ID: "e2", ClusterID: "c", Generation: 1, Reason: "generation changed", Updated: at(2), Published: at(3)}},
		{At: at(3), Write: &Write{Verb: "patch", Shoot: "s-a", UID: "ua", ClusterID: "a", Generation: 2, Changed: 1, History: "old", Start: at(2), End: at(3), Status: 201}},
		{At: at(3), Change: &Change{Action: "shoot-created", ClusterID: "a", Time: at(3)}},
		{At: at(4), Write: &Write{Verb: "patch", Shoot: "s-c", UID: "uc", ClusterID: "c", Generation: 1, Changed: 1, History: "old", Start: at(3), End: at(4), Status: 201}},
		{At: at(4), Change: &Change{Action: "shoot-created", ClusterID: "c", Time: at(4)}},

		// Lost, and therefore without events and change events.
		{At: at(11), Request: &Request{Op: Edit, Name: "blue-a", ClusterID: "a", Generation: 3, Start: at(10), End: at(11), Outcome: OK}},
		{At: at(12), Event: &Event{ID: "e3", ClusterID: "a", Generation: 3, Reason: "generation changed", Updated: at(11), Published: at(12)}},
		{At: at(12), Write: &Write{Verb: "patch", Shoot: "s-a", UID: "ua", ClusterID: "a", Generation: 3, Changed: 2, History: "old", Start: at(11), End: at(12), Status: 200}},
		{At: at(13), Request: &Request{Op: Create, Name: "blue-b", ClusterID: "b", Generation: 1, Start: at(12), End: at(13), Outcome: OK}},
		{At: at(14), Write: &Write{Verb: "patch", Shoot: "s-b", UID: "ub", ClusterID: "b", Generation: 1, Changed: 1, History: "old", Start: at(13), End: at(14), Status: 201}},
		{At: at(15), Request: &Request{Op: Delete, Name: "blue-c", ClusterID: "c", Generation: 2, Start: at(14), End: at(15), Outcome: OK}},
		{At: at(16), Write: &Write{Verb: "delete", Shoot: "s-c", Start: at(15), End: at(16), Status: 200}},
		{At: at(18), Request: &Request{Op: Edit, Name: "blue-d", ClusterID: "d", Generation: 4, Start: at(17), End: at(18), Outcome: OK}},

		{At: at(21), Restore: &Restore{
			Backup: at(10), Up: at(20), HistoryBefore: "old", HistoryAfter: "new", WatchStatus: 410, Preflight: []string{"a"}, Missing: []string{"c"},
			Kept: map[string]Kept{"a": {Generation: 2, SyncGeneration: 2}, "c": {Generation: 1, SyncGeneration: 1, HasShoot: true}, "d": {Generation: 3, SyncGeneration: 3, Deleting: true}},
			Shoots: []Shoot{
				{Name: "s-a", UID: "ua", ClusterID: "a", Generation: 3, Created: at(3)},
				{Name: "s-b", UID: "ub", ClusterID: "b", Generation: 1, Created: at(14)},
				{Name: "s-d", UID: "ud", ClusterID: "d", Generation: 4, Created: at(3)},
			},
		}},

		{At: at(22), Request: &Request{Op: Edit, Name: "blue-a", ClusterID: "a", Generation: 3, Start: at(21), End: at(22), Outcome: OK}},
		{At: at(23), Event: &Event{ID: "e4", ClusterID: "a", Generation: 3, Reason: "generation changed", Updated: at(22), Published: at(23)}},
		{At: at(23), Request: &Request{Op: Delete, Name: "blue-c", ClusterID: "c", Generation: 2, Start: at(22), End: at(23), Outcome: OK}},
		{At: at(24), Event: &Event{ID: "e5", ClusterID: "c", Generation: 2, Reason: "generation changed", Updated: at(23), Published: at(24)}},
		{At: at(24), Change: &Change{Action: "shoot-deleted", ClusterID: "c", Time: at(24)}},
		{At: at(24), Request: &Request{Op: Edit, Name: "blue-a", ClusterID: "a", Generation: 2, Start: at(20), End: at(21), Outcome: OK}}, // without a change
		{At: at(25), LostChange: &LostChange{ClusterID: "a"}},
		{At: at(26), Overwrite: &Overwrite{ClusterID: "a", Start: at(26)}},
		{At: at(28), Write: &Write{Verb: "patch", Shoot: "s-a", UID: "ua", ClusterID: "a", Generation: 1000003, Changed: 3, History: "new", Start: at(27), End: at(28), Status: 200}},
		{At: at(28), Change: &Change{Action: "shoot-updated", ClusterID: "a", Time: at(28)}},
		{At: at(29), Orphan: &Orphan{UID: "ub", FromOtherHistory: true}},
		{At: at(40), Cluster: &Cluster{ID: "a", Name: "blue-a", Generation: 3, SyncGeneration: 1000003, Reported: map[string]int64{"dns": 3, "gardener": 3}, Created: at(1), Updated: at(22)}},
		{At: at(40), Shoot: &Shoot{Name: "s-a", UID: "ua", ClusterID: "a", Generation: 1000003, Workers: map[string]int{defaultWorkers: defaultMachines}}},
		{At: at(40), Shoot: &Shoot{Name: "s-b", UID: "ub", ClusterID: "b", Generation: 1, Workers: map[string]int{defaultWorkers: defaultMachines}}},
	}, more)
}

// checkersOfRestore are those that take a restore into account.
func checkersOfRestore() []Checker {
	return []Checker{CheckWakeUps, CheckStableEventIDs, CheckChangeEventsNotLost, CheckConvergence, CheckSingleShootAndOrder, CheckTimesInOrder, CheckRestore}
}

// TestRestore holds that what was acknowledged between the backup and the restore may be lost.
func TestRestore(t *testing.T) {
	t.Parallel()
	for _, check := range checkersOfRestore() {
		if r := check(testConfig(), newRestore()); len(r.Violations) > 0 || r.Checked == 0 {
			t.Errorf("%s: checked %d, violations %q", r.Promise, r.Checked, r.Violations)
		}
	}
	latencies := computeLatenciesByOperation(newRestore())
	if wakeUp := latencies[len(latencies)-1]; len(wakeUp.took) != 5 || slices.Max(wakeUp.took) != at(1).Sub(at(0)) {
		t.Errorf("wake-ups %v, want five within a second", wakeUp.took)
	}
}

// TestPlantedRestoreViolations plants one violation at a time in a history with a restore.
func TestPlantedRestoreViolations(t *testing.T) {
	t.Parallel()
	edit := func(change func(*Restore)) []Record {
		records := newRestore()
		for _, r := range records {
			if r.Restore != nil {
				change(r.Restore)
			}
		}
		return records
	}
	writeOf := func(w Write) Record { return Record{At: w.End, Write: &w} }
	for name, test := range map[string]plantedViolation{
		"NoRestore": {"the fault was not injected", CheckRestore, without(newRestore(), func(r Record) bool { return r.Restore != nil }), "no restore was completed"},
		"OldHistory": {
			"nothing can tell the histories apart", CheckRestore, edit(func(r *Restore) { r.HistoryAfter = "old" }), `the history "old" before the restore, and "old" after it`,
		},
		"SilentWatch": {"the client misses what was undone", CheckRestore, edit(func(r *Restore) { r.WatchStatus = 200 }), "got the status 200, want 410"},
		"DeletedOrphan": {
			"the data of a lost cluster is gone", CheckRestore,
			newRestore(writeOf(Write{Verb: "delete", Shoot: "s-b", Start: at(30), End: at(31), Status: 200})), "Shoot s-b of the lost cluster b was deleted at 12:00:31",
		},
		"VanishedOrphan": {
			"it is gone without a deletion in the audit log", CheckRestore,
			without(newRestore(), func(r Record) bool { return r.Shoot != nil && r.Shoot.UID == "ub" }), "Shoot s-b of the lost cluster b is gone",
		},
		"ChangedOrphan": {
			"another cluster took it over", CheckRestore,
			newRestore(writeOf(Write{Verb: "patch", Shoot: "s-b", UID: "ub", ClusterID: "e", Changed: 2, History: "new", Start: at(30), End: at(31), Status: 200})), "Shoot s-b of the lost cluster b was changed",
		},
		"SilentOrphan": {
			"no worker reports the orphan", CheckRestore, without(newRestore(), func(r Record) bool { return r.Orphan != nil }), "Shoot s-b of the lost cluster b was not reported",
		},
		"OrphanOfThisHistory": {
			"it would be deleted", CheckRestore,
			append(without(newRestore(), func(r Record) bool { return r.Orphan != nil }), Record{Orphan: &Orphan{UID: "ub"}}), "was not reported as an orphan of another history",
		},
		"OlderSpec": {
			"the lost change is replaced before the operator agrees", CheckRestore,
			newRestore(writeOf(Write{Verb: "patch", Shoot: "s-a", UID: "ua", ClusterID: "a", Generation: 3, Changed: 3, History: "new", Start: at(24), End: at(25), Status: 200})),
			"Shoot s-a had generation 3 before the restore, and was replaced with generation 3 at 12:00:25.000 without a permission",
		},
		"NoPermission": {
			"no operator agrees", CheckRestore, without(newRestore(), func(r Record) bool { return r.Overwrite != nil }), "was replaced with generation 1000003",
		},
		"SilentSync": {"no sync fails", CheckRestore, without(newRestore(), func(r Record) bool { return r.LostChange != nil }), "and no sync said so"},
		"SilentPreflight": {
			"the operator starts the workers without a warning", CheckRestore, edit(func(r *Restore) { r.Preflight = nil }), "and preflight did not say so",
		},
		"SilentAboutMissing": {
			"the operator does not know that the worker creates the Shoot again", CheckRestore, edit(func(r *Restore) { r.Missing = nil }), "cluster c has no Shoot after the restore, and preflight did not say so",
		},
		"NotMissing": {
			"the operator would delete a cluster with a Shoot", CheckRestore, edit(func(r *Restore) { r.Missing = []string{"a", "c"} }), "cluster a has a Shoot after the restore, and preflight lists it as missing",
		},
		"NeverThere": {
			"the cluster never had a Shoot", CheckRestore, edit(func(r *Restore) { r.Missing = []string{"c", "e"} }), "the Shoot of cluster e as missing, which is not expected to have one",
		},
		"DeletedChange": {
			"the Shoot of a cluster is created again", CheckRestore,
			newRestore(writeOf(Write{Verb: "delete", Shoot: "s-a", Start: at(30), End: at(31), Status: 200})), "Shoot s-a was deleted at 12:00:31.000, although its cluster exists",
		},
		"EndedHistory": {
			"the next restore takes it for its own", CheckRestore,
			newRestore(writeOf(Write{Verb: "patch", Shoot: "s-a", UID: "ua", ClusterID: "a", Generation: 4, Changed: 4, History: "old", Start: at(26.5), End: at(31), Status: 200})),
			"was written at 12:00:31.000 for the history old",
		},

		"KeptWakeUp": {
			"the backup has the generation", CheckWakeUps,
			newRestore(Record{Request: &Request{Op: Edit, Name: "blue-d", ClusterID: "d", Generation: 3, End: at(11), Outcome: OK}}), "edit of blue-d (d): generation 3",
		},
		"WakeUpBeforeTheBackup": {
			"the backup must have what was acknowledged before it", CheckWakeUps,
			newRestore(Record{Request: &Request{Op: Edit, Name: "blue-d", ClusterID: "d", Generation: 9, End: at(9), Outcome: OK}}), "edit of blue-d (d): generation 9",
		},
		"WakeUpOfTheOldHistory": {
			"the event is about a lost change with the same generation", CheckWakeUps,
			without(newRestore(), func(r Record) bool { return r.Event != nil && r.Event.ID == "e4" }), "edit of blue-a (a): generation 3",
		},
		"TwoIDs": {
			"the new history has one decision, too", CheckStableEventIDs,
			newRestore(Record{Event: &Event{ID: "e9", ClusterID: "a", Generation: 3, Reason: "generation changed", Updated: at(22), Published: at(24)}}), "has the ids e4 and e9",
		},
		"IDOfTheOldHistory": {
			"a broker drops it as a duplicate", CheckStableEventIDs,
			newRestore(Record{Event: &Event{ID: "e3", ClusterID: "a", Generation: 3, Reason: "generation changed", Updated: at(22), Published: at(24)}}), "event e3 is about",
		},
		"ChangeEventAfterTheRestore": {
			"the outbox is the restored one", CheckChangeEventsNotLost,
			without(newRestore(), func(r Record) bool { return r.Change != nil && r.Change.Action == "shoot-updated" }), "no shoot-updated for Shoot s-a",
		},
		"ChangeEventBeforeTheBackup": {
			"the backup contains the pending change event", CheckChangeEventsNotLost,
			without(newRestore(), func(r Record) bool {
				return r.Change != nil && r.Change.Action == "shoot-created" && r.Change.ClusterID == "c"
			}), "no shoot-created for Shoot s-c",
		},
		"DeletedAgain": {
			"the second deletion is told", CheckChangeEventsNotLost,
			without(newRestore(), func(r Record) bool { return r.Change != nil && r.Change.Action == "shoot-deleted" }), "no shoot-deleted for Shoot s-c",
		},
		"LostBeforeTheBackup": {
			"the backup must have it", CheckConvergence,
			newRestore(Record{Request: &Request{Op: Create, Name: "blue-f", ClusterID: "f", Generation: 1, End: at(9), Outcome: OK}}), "blue-f (f) is gone",
		},
		"LostAfterTheRestore": {
			"the restored database must keep it", CheckConvergence,
			newRestore(Record{Request: &Request{Op: Create, Name: "blue-f", ClusterID: "f", Generation: 1, End: at(20), Outcome: OK}}), "blue-f (f) is gone",
		},
		"LostDeletionIsNoExcuse": {
			"the backup contains the cluster, and no user deleted it afterwards", CheckConvergence,
			without(newRestore(), func(r Record) bool { return r.Request.isDeletion() && r.At.Equal(at(23)) }), "blue-c (c) is gone",
		},
		"OlderOrphan": {
			"its cluster was deleted before the backup", CheckConvergence, edit(func(r *Restore) { r.Shoots[1].Created = at(8) }), "Shoot s-b belongs to cluster b, which does not exist",
		},
		"TimeGoesBack": {
			"the generations of the new history have an order", CheckTimesInOrder,
			newRestore(Record{At: at(30), Event: &Event{ID: "e9", ClusterID: "a", Generation: 4, Updated: at(20), Published: at(30)}}), "changed to generation 3 at 12:00:22.000, and to 4 at 12:00:20.000",
		},
		"TimeWentBack": {
			"those of the old history, too", CheckTimesInOrder,
			newRestore(Record{At: at(30), Event: &Event{ID: "e9", ClusterID: "a", Generation: 4, Updated: at(9), Published: at(30)}}), "changed to generation 3 at 12:00:11.000, and to 4 at 12:00:09.000",
		},
	} {
		t.Run(name, test.run)
	}
}

// TestShootsWithoutAPromise holds that a Shoot may end if its end was in progress, or if a user deletes its cluster.
func TestShootsWithoutAPromise(t *testing.T) {
	t.Parallel()
	confirmation := Record{Write: &Write{Verb: "patch", Shoot: "s-a", UID: "ua", ClusterID: "a", Generation: 3, Changed: 2, History: "old", Start: at(24), End: at(25), Status: 200}}
	records := without(newRestore(confirmation), func(r Record) bool {
		return r.Cluster != nil || r.LostChange != nil || r.Overwrite != nil || r.Shoot != nil || r.Orphan != nil || r.At.Equal(at(28))
	})
	for _, r := range records {
		if r.Restore != nil {
			r.Restore.Preflight, r.Restore.Shoots[1].Deleting = nil, true
		}
	}
	if got := CheckRestore(testConfig(), records).Violations; len(got) > 0 {
		t.Errorf("violations %q", got)
	}
}

// TestRestoreIsChecked holds that a run with a restore has its checker, and other runs do not.
func TestRestoreIsChecked(t *testing.T) {
	t.Parallel()
	for _, restore := range []bool{true, false} {
		found := slices.ContainsFunc(RunAllCheckers(Config{Restore: restore}, nil), func(r Result) bool { return strings.HasPrefix(r.Promise, "R20 ") })
		if found != restore {
			t.Errorf("restore %t: checked %t", restore, found)
		}
	}
}
