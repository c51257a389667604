package history

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at returns a time of the histories of the tests.
func at(seconds float64) time.Time {
	return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

func testConfig() Config {
	return Config{
		Adapters: []string{"dns", "gardener"}, Sentinels: 2, Interval: 10 * time.Second, Budget: 1,
		Leaders: []string{"controller"}, MemoryLimits: map[string]int64{"sentinel": 128 << 20}, StopTimeout: 30 * time.Second,
		ClockSkew: time.Second,
		Rates:     map[string]Rate{"sentinel": {Replicas: 2, PerSecond: 1, Burst: 2}, "cluster-worker": {Replicas: 1, PerSecond: 1, Burst: 3}},
	}
}

// newHistory returns a history without violations: cluster a was edited once, and cluster b was deleted.
func newHistory() []Record {
	return []Record{
		{At: at(1), Request: &Request{Op: Create, Tenant: "blue", Name: "blue-1", Intended: at(0), Start: at(0), End: at(1), Outcome: OK, ClusterID: "a", Generation: 1}},
		{At: at(2), Event: &Event{Consumer: "recorder", ID: "e1", ClusterID: "a", Generation: 1, Reason: "generation changed", Updated: at(1), Published: at(2)}},
		{At: at(3), Write: &Write{Verb: "patch", Shoot: "s-a", UID: "ua", ClusterID: "a", Generation: 1, Changed: 1, Start: at(2), End: at(3), Status: 201}},
		{At: at(3), Change: &Change{Action: "shoot-created", ClusterID: "a", Time: at(3)}},
		{At: at(4), Request: &Request{Op: Edit, Tenant: "blue", Name: "blue-1", Intended: at(3), Start: at(3), End: at(4), Outcome: OK, ClusterID: "a", Generation: 2}},
		{At: at(5), Event: &Event{Consumer: "recorder", ID: "e2", ClusterID: "a", Generation: 2, Reason: "generation changed", Updated: at(4), Published: at(5)}},
		{At: at(6), Event: &Event{Consumer: "recorder", ID: "e2", ClusterID: "a", Generation: 2, Reason: "generation changed", Updated: at(4), Published: at(6)}},
		{At: at(15), Event: &Event{Consumer: "recorder", ID: "e3", ClusterID: "a", Generation: 2, Reason: "generation changed", Updated: at(4), Published: at(15)}},
		{At: at(6), Write: &Write{Verb: "patch", Shoot: "s-a", UID: "ua", ClusterID: "a", Generation: 2, Changed: 2, Start: at(5), End: at(6), Status: 200}},
		{At: at(6), Change: &Change{Action: "shoot-updated", ClusterID: "a", Time: at(6)}},
		{At: at(6), Report: &Report{Adapter: "dns", ClusterID: "a", Generation: 2}},
		{At: at(7), Request: &Request{Op: Create, Tenant: "green", Name: "green-2", Intended: at(7), Start: at(7), End: at(7), Outcome: OK, ClusterID: "b", Generation: 1}},
		{At: at(8), Write: &Write{Verb: "patch", Shoot: "s-b", UID: "ub", ClusterID: "b", Generation: 1, Start: at(8), End: at(8), Status: 201}},
		{At: at(8), Change: &Change{Action: "shoot-created", ClusterID: "b", Time: at(8)}},
		{At: at(9), Request: &Request{Op: Delete, Tenant: "green", Name: "green-2", Intended: at(9), Start: at(9), End: at(9), Outcome: OK, ClusterID: "b", Generation: 2}},
		{At: at(9), Report: &Report{Adapter: "dns", ClusterID: "b", Generation: 2}},
		{At: at(10), Change: &Change{Action: "shoot-deleted", ClusterID: "b", Time: at(10)}},
		{At: at(11), Request: &Request{Op: Trespass, Tenant: "green", Name: "blue-1", Intended: at(11), Start: at(11), End: at(11), Outcome: Failed, Status: 404, ClusterID: "a"}},
		{At: at(11), Read: &Read{Tenant: "blue", Names: []string{"blue-1"}}},
		{At: at(12), Fault: &Fault{Kind: "kill", Target: "sentinel-0", Start: at(12), End: at(12)}},
		{At: at(16), Request: &Request{Op: CreatePool, Tenant: "blue", Name: "blue-1-w", Intended: at(16), Start: at(16), End: at(16), Outcome: OK, ClusterID: "a", PoolID: "p", Generation: 1}},
		{At: at(16), Event: &Event{Consumer: "recorder", ID: "e9", Collection: "nodepools", ClusterID: "p", Generation: 1, Reason: "generation changed", Updated: at(16), Published: at(16)}},
		{At: at(17), Write: &Write{Verb: "patch", Shoot: "s-a", UID: "ua", ClusterID: "a", Generation: 3, Changed: 3, Start: at(16.9), End: at(17), Status: 200}},
		{At: at(17), Change: &Change{Action: "shoot-updated", ClusterID: "a", Time: at(17)}},
		{At: at(18), Request: &Request{Op: CreatePool, Tenant: "green", Name: "green-2-w", Intended: at(7), Start: at(7), End: at(8), Outcome: OK, ClusterID: "b", PoolID: "q", Generation: 1}},
		{At: at(18), Report: &Report{Adapter: "dns", ClusterID: "q", Generation: 2}},
		{At: at(20), Pool: &Pool{ID: "p", Name: "blue-1-w", ClusterID: "a", Generation: 1, Reported: map[string]int64{"dns": 1, "gardener": 1}, Machines: 2}},
		{At: at(20), Cluster: &Cluster{ID: "a", Name: "blue-1", Generation: 2, SyncGeneration: 3, Phase: "Ready", Reported: map[string]int64{"dns": 2, "gardener": 2}, Created: at(1), Updated: at(4), Conditions: []Condition{
			{Name: "Ready", Changed: at(6)}, {Name: "dns/Available", Changed: at(5), Updated: at(6)},
		}}},
		{At: at(20), Shoot: &Shoot{Name: "s-a", UID: "ua", ClusterID: "a", Generation: 3, Workers: map[string]int{"blue-1-w": 2}}},
		{At: at(19), Change: &Change{Action: "execution-succeeded", Subject: "executions/scale-1"}},
		{At: at(20), Execution: &Execution{
			Name: "scale-1", Wanted: true, Requested: true, Approved: true, Phase: "completed", Outcome: "Succeeded", Jobs: 1, TargetChanges: 2, RollbackPlanned: true,
			Rollback: &Rollback{Approved: true, Phase: "completed", Outcome: "Succeeded", Restored: true},
		}},
		{At: at(12), Stop: &Stop{Process: "sentinel-0", State: "exit status 0", Took: time.Second}},
		{At: at(12), Usage: &Usage{Process: "sentinel-0", Memory: 50 << 20, Goroutines: 60, Files: 20}},
		{At: at(100), Usage: &Usage{Process: "sentinel-0", Memory: 60 << 20, Goroutines: 200, Files: 60}},
		{At: at(20), Execution: &Execution{Name: "scale-2", Requested: true, Phase: "waiting_approval"}},
		{At: at(12), NodeReport: &NodeReport{Node: "n1", Acknowledged: true}},
		{At: at(13), Node: &Node{Name: "n1", Cordoned: true}},
		{At: at(13), Change: &Change{ID: "c1", Action: "cordon", Node: "n1"}},
		{At: at(14), NodeReport: &NodeReport{Node: "n1", Healthy: true, Acknowledged: true}},
		{At: at(15), Node: &Node{Name: "n1"}},
		{At: at(15), Change: &Change{ID: "c2", Action: "uncordon", Node: "n1"}},
		{At: at(20), Sentinel: &Sentinel{Name: "sentinel-0", Collection: "clusters", Owned: 1}},
		{At: at(20), Sentinel: &Sentinel{Name: "sentinel-1", Collection: "clusters", Owned: 0}},
		{At: at(20), Sentinel: &Sentinel{Name: "sentinel-0", Collection: "nodepools", Owned: 1}},
		{At: at(20), Sentinel: &Sentinel{Name: "sentinel-1", Collection: "nodepools", Owned: 0}},
	}
}

// without returns the records that remove does not select.
func without(list []Record, remove func(Record) bool) []Record {
	out := slices.DeleteFunc(slices.Clone(list), remove)
	if len(out) == len(list) {
		panic("the history has no such record")
	}
	return out
}

func TestNoViolations(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Sentinels = 0 // the small history leaves one sentinel without a cluster
	records := without(newHistory(), func(r Record) bool { return r.Sentinel != nil && r.Sentinel.Owned == 0 })
	cfg.Sentinels = 1
	for _, r := range RunAllCheckers(cfg, records) {
		if len(r.Violations) > 0 {
			t.Errorf("%s: %q", r.Promise, r.Violations)
		}
		if r.Checked == 0 {
			t.Errorf("%s: nothing was checked", r.Promise)
		}
	}
}

// A plantedViolation is a history with a violation that the checker must report.
type plantedViolation struct {
	reason  string
	check   Checker
	records []Record
	want    string
}

func (p plantedViolation) run(t *testing.T) {
	t.Parallel()
	got := p.check(testConfig(), p.records).Violations
	if !slices.ContainsFunc(got, func(v string) bool { return strings.Contains(v, p.want) }) {
		t.Errorf("%s: violations %q, want one with %q", p.reason, got, p.want)
	}
}

// TestPlantedViolations plants one violation at a time. The checker of its promise must report it.
func TestPlantedViolations(t *testing.T) {
	t.Parallel()
	add := func(more ...Record) []Record { return append(newHistory(), more...) }
	for name, test := range map[string]plantedViolation{
		"LostWakeUp": {
			"the last generation has neither an event nor a report", CheckWakeUps,
			without(newHistory(), func(r Record) bool {
				return r.Event != nil && r.Event.Generation == 2 || r.Report != nil && r.Report.ClusterID == "a"
			}),
			"edit of blue-1 (a): generation 2 acknowledged",
		},
		"DeletionWithoutEvent": {
			"a deletion needs an event, too", CheckWakeUps,
			without(newHistory(), func(r Record) bool { return r.Report != nil && r.Report.ClusterID == "b" }),
			"delete of green-2 (b): generation 2",
		},
		"StaleReport": {
			"an adapter never saw the last generation", CheckWakeUps,
			add(Record{Cluster: &Cluster{ID: "c", Name: "blue-3", Generation: 3, Reported: map[string]int64{"dns": 2, "gardener": 3}}}),
			"cluster blue-3: adapter dns reported generation 2, the last is 3",
		},
		"NewIDForTheSameOccasion": {
			"a consumer would work twice", CheckStableEventIDs,
			add(Record{Event: &Event{ID: "e4", ClusterID: "a", Generation: 2, Reason: "generation changed", Updated: at(4), Published: at(7)}}),
			"has the ids e2 and e4",
		},
		"TwoIDsMoreThanIntervals": {
			"later intervals do not excuse earlier ones", CheckStableEventIDs,
			add(Record{Event: &Event{ID: "e4", ClusterID: "a", Generation: 2, Reason: "generation changed", Updated: at(4), Published: at(16)}}),
			"1 ids more than intervals",
		},
		"OneIDForTwoOccasions": {
			"a consumer would drop the second", CheckStableEventIDs,
			add(Record{Event: &Event{ID: "e1", ClusterID: "a", Generation: 2, Reason: "generation changed", Updated: at(4), Published: at(5)}}),
			"event e1 is about",
		},
		"LostCreated": {
			"the sink was not told of a Shoot", CheckChangeEventsNotLost,
			without(newHistory(), func(r Record) bool {
				return r.Change != nil && r.Change.Action == "shoot-created" && r.Change.ClusterID == "a"
			}),
			"received no shoot-created",
		},
		"LostDeleted": {
			"the sink was not told of a deletion", CheckChangeEventsNotLost,
			without(newHistory(), func(r Record) bool { return r.Change != nil && r.Change.Action == "shoot-deleted" }),
			"received no shoot-deleted",
		},
		"LostUpdated": {
			"the sink was not told of an update", CheckChangeEventsNotLost,
			without(newHistory(), func(r Record) bool { return r.Change != nil && r.Change.Action == "shoot-updated" }),
			"received no shoot-updated",
		},
		"LostExecution": {
			"the sink was not told of the end of an execution", CheckChangeEventsNotLost,
			without(newHistory(), func(r Record) bool { return r.Change != nil && r.Change.Subject != "" }), "no execution-succeeded for execution scale-1",
		},
		"TwoShootsAtTheEnd": {
			"a cluster has one Shoot", CheckConvergence,
			add(Record{Shoot: &Shoot{Name: "s-a2", UID: "ua2", ClusterID: "a", Generation: 2}}), "has 2 Shoots",
		},
		"ShootOfADeletedCluster": {
			"a Shoot without a cluster costs money", CheckConvergence,
			add(Record{Shoot: &Shoot{Name: "s-b", UID: "ub", ClusterID: "b", Generation: 1}}), "which does not exist",
		},
		"ShootIsBehind": {
			"the last edit never arrived", CheckConvergence,
			append(without(newHistory(), func(r Record) bool { return r.Shoot != nil }), Record{Shoot: &Shoot{Name: "s-a", UID: "ua", ClusterID: "a", Generation: 1}}),
			"has generation 3, its Shoot s-a has 1",
		},
		"LostCluster": {
			"the database lost an acknowledged creation", CheckConvergence,
			add(Record{Request: &Request{Op: Create, Name: "blue-9", Outcome: OK, ClusterID: "z", Generation: 1}}), "is gone, although no user deleted it",
		},
		"LostEdit": {
			"the database lost an acknowledged edit", CheckConvergence,
			add(Record{Request: &Request{Op: Edit, Name: "blue-1", Outcome: OK, ClusterID: "a", Generation: 3}}), "although 3 was acknowledged",
		},
		"LostDeletion": {
			"the database lost an acknowledged deletion", CheckConvergence,
			add(Record{Request: &Request{Op: Delete, Name: "blue-1", Outcome: OK, ClusterID: "a", Generation: 3}}), "although its deletion was acknowledged",
		},
		"StuckDeletion": {
			"a deletion ends", CheckConvergence,
			add(Record{Cluster: &Cluster{ID: "d", Name: "blue-4", Generation: 2, Deleting: true}}), "still being deleted",
		},
		"SecondShoot": {
			"two workers made a Shoot each", CheckSingleShootAndOrder,
			add(Record{Write: &Write{Verb: "patch", Shoot: "s-a2", UID: "ua2", ClusterID: "a", Generation: 1, Start: at(7), End: at(8), Status: 201}}),
			"has the Shoots s-a and s-a2",
		},
		"OlderGenerationWins": {
			"a worker that was frozen overwrites", CheckSingleShootAndOrder,
			add(Record{Write: &Write{Verb: "patch", Shoot: "s-a", UID: "ua", ClusterID: "a", Generation: 1, Start: at(7), End: at(8), Status: 200}}),
			"went back from generation 2",
		},
		"ExecutedUnapproved": {
			"an execution without an approval", CheckApprovals,
			add(Record{Execution: &Execution{Name: "scale-3", Requested: true, Phase: "completed", TargetChanges: 1}}), "was not approved",
		},
		"ForgedApproval": {
			"the requester approved it", CheckApprovals,
			add(Record{Execution: &Execution{Name: "scale-3", Forged: true}}), "accepted a forged approval",
		},
		"ApprovedAndStuck": {
			"the approval has no effect", CheckApprovals,
			add(Record{Execution: &Execution{Name: "scale-3", Wanted: true, Approved: true, Phase: "executing"}}), `is "executing"`,
		},
		"TwoJobs": {
			"two controllers led", CheckExecutedOnce,
			add(Record{Execution: &Execution{Name: "scale-3", Wanted: true, Approved: true, Outcome: "Succeeded", Jobs: 2, TargetChanges: 1}}), "has 2 Jobs",
		},
		"TwoChanges": {
			"a Job ran twice", CheckExecutedOnce,
			add(Record{Execution: &Execution{Name: "scale-3", Wanted: true, Approved: true, Outcome: "Succeeded", Jobs: 1, TargetChanges: 2}}), "changed its target 2 times",
		},
		"OverBudget": {
			"two nodes are out of service", CheckBudget,
			add(Record{Node: &Node{Name: "n2", Cordoned: true}}, Record{Node: &Node{Name: "n3", Cordoned: true}}), "2 nodes are cordoned",
		},
		"BlockedRecovery": {
			"the node has recovered", CheckBudget,
			without(newHistory(), func(r Record) bool { return r.Node != nil && !r.Node.Cordoned }), "node n1 has recovered and is still cordoned",
		},
		"LostCordon": {
			"the sink was not told of a cordon", CheckBudget,
			add(Record{Node: &Node{Name: "n1", Cordoned: true}}, Record{Node: &Node{Name: "n1"}}), "cordon n1 happened 2 times",
		},
		"Overlap": {
			"two sentinels watch the same cluster", CheckShardsCoverAll,
			append(without(newHistory(), func(r Record) bool { return r.Sentinel != nil && r.Sentinel.Owned == 0 }),
				Record{Sentinel: &Sentinel{Name: "sentinel-1", Collection: "clusters", Owned: 1}}),
			"watch 2 clusters in total, the API has 1",
		},
		"LostReplica": {
			"a replica never came back", CheckShardsCoverAll,
			without(newHistory(), func(r Record) bool { return r.Sentinel != nil && r.Sentinel.Owned == 0 }), "1 sentinels share the nodepools",
		},
		"ForeignRead": {
			"a tenant sees the name of another's cluster", CheckTenants,
			add(Record{At: at(12), Read: &Read{Tenant: "green", Names: []string{"blue-1"}}}), "tenant green read blue-1",
		},
		"ForeignWrite": {
			"a tenant changes another's cluster", CheckTenants,
			add(Record{Request: &Request{Op: Trespass, Tenant: "green", Name: "blue-1", Outcome: OK}}), "tenant green changed",
		},
		"RefusedToken": {
			"the API forgot a token before its client", CheckTokensNotRefused,
			add(Record{Request: &Request{Op: Edit, Name: "blue-1", Outcome: Failed, Status: 401}}), "edit of blue-1",
		},
		"Exit": {
			"a process crashed", CheckNoUnexpectedExits,
			add(Record{At: at(13), Exit: &Exit{Process: "sentinel-1", State: "exit status 2"}}), "sentinel-1 ended",
		},
		"ExitAfterAFreezeOfAnother": {
			"the process was not frozen", CheckNoUnexpectedExits,
			add(Record{Fault: &Fault{Kind: "freeze", Target: "controller-1", Start: at(10), End: at(40)}}, Record{At: at(41), Exit: &Exit{Process: "controller-0"}}),
			"controller-0 ended",
		},
		"ApprovedWithoutRollback": {
			"the approver did not know how to roll back", CheckRollbacks,
			add(Record{Execution: &Execution{Name: "scale-3", Approved: true, Outcome: "Succeeded"}}), "execution scale-3 was approved without",
		},
		"RollbackFailed": {
			"the change remains", CheckRollbacks,
			add(Record{Execution: &Execution{Name: "scale-3", Approved: true, RollbackPlanned: true, Rollback: &Rollback{Approved: true, Outcome: "Succeeded"}}}),
			"the rollback of execution scale-3",
		},
		"KilledAtStop": {
			"the process did not end in time", CheckGracefulStops,
			add(Record{At: at(60), Stop: &Stop{Process: "sentinel-1", State: "signal: killed", Took: 31 * time.Second}}), "sentinel-1 got SIGTERM at 12:00:29.000",
		},
		"ErrorAtStop": {
			"a stop is not an error", CheckGracefulStops,
			add(Record{At: at(60), Stop: &Stop{Process: "sentinel-1", State: "exit status 1", Took: time.Second}}), "exit status 1",
		},
		"NoUsage": {
			"nothing was measured", CheckUsage,
			without(newHistory(), func(r Record) bool { return r.Usage != nil }), "no usage of sentinel was recorded",
		},
		"Memory": {
			"the kernel would kill the container", CheckUsage,
			add(Record{At: at(13), Usage: &Usage{Process: "sentinel-0", Memory: 129 << 20}}), "sentinel-0 uses 129 MiB",
		},
		"Goroutines": {
			"something waits for ever", CheckUsage,
			add(Record{At: at(101), Usage: &Usage{Process: "sentinel-0", Goroutines: 221}}), "sentinel-0 has 221 goroutines",
		},
		"Files": {
			"connections are not closed", CheckUsage,
			add(Record{At: at(101), Usage: &Usage{Process: "sentinel-0", Files: 141}}), "141 open files",
		},
	} {
		t.Run(name, test.run)
	}
}

// TestExitWithoutALease holds that a leader may end itself when it could not renew its Lease.
func TestExitWithoutALease(t *testing.T) {
	t.Parallel()
	for _, f := range []Fault{{Kind: "freeze", Target: "controller-0"}, {Kind: "host", Target: "kube-apiserver"}} {
		f.Start, f.End = at(10), at(40)
		for after, want := range map[float64]int{-31: 1, -10: 0, 10: 0, 60: 1} {
			exit := Record{At: at(40 + after), Exit: &Exit{Process: "controller-0"}}
			if r := CheckNoUnexpectedExits(testConfig(), append(newHistory(), exit, Record{Fault: &f})); len(r.Violations) != want {
				t.Errorf("%g s after a %s: %q", after, f.Kind, r.Violations)
			}
		}
	}
}

// TestExitWhileTheServerIsSilent holds that a leader may end itself when its API server gave no response.
func TestExitWhileTheServerIsSilent(t *testing.T) {
	t.Parallel()
	silence := Record{At: at(40), Silence: &Silence{Server: "kube-apiserver", Start: at(30), End: at(40)}}
	for after, want := range map[float64]int{-11: 1, 10: 0, 60: 1} {
		exit := Record{At: at(40 + after), Exit: &Exit{Process: "controller-0"}}
		r := CheckNoUnexpectedExits(testConfig(), append(newHistory(), exit, silence))
		if len(r.Violations) != want {
			t.Errorf("%g s after the silence: %q", after, r.Violations)
		}
	}
}

// TestUnknownOutcomes holds that a request with an unknown outcome promises nothing.
func TestUnknownOutcomes(t *testing.T) {
	t.Parallel()
	records := append(newHistory(),
		Record{Request: &Request{Op: Edit, Name: "blue-1", Outcome: Unknown, ClusterID: "a"}},
		Record{Request: &Request{Op: Create, Name: "blue-7", Outcome: Unknown}},
	)
	for _, check := range []Checker{CheckWakeUps, CheckConvergence} {
		if r := check(testConfig(), records); len(r.Violations) > 0 {
			t.Errorf("%s: %q", r.Promise, r.Violations)
		}
	}
}

// TestFile holds that what was added is read again.
func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	f, err := NewFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range newHistory() {
		if r.At.IsZero() {
			t.Fatal("a record without a time")
		}
		f.Add(r)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(newHistory(), got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestReport holds that the latency of a request counts from its intended start, and that the report
// names violations and faults.
func TestReport(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	results := []Result{{Promise: "R1", Checked: 2, Violations: []string{"lost"}}, {Promise: "R2", Checked: 3}}
	if err := WriteReport(&out, Summarize(Run{}, results, append(newHistory(), Record{Silence: &Silence{}})), results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"R1       2        1           1", "R1: lost", "faults: 1 kill", "or an overload: 1", "R15 no crash on hostile input: shown by make test: ", "edit         1      1   0       0        1s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}

// TestStopOfAnEndedProcess verifies that a SIGTERM after the end of a process counts as no stop.
func TestStopOfAnEndedProcess(t *testing.T) {
	exit := Record{At: at(50), Exit: &Exit{Process: "sentinel-1", State: "exit status 1"}}
	seen := Record{At: at(55), Usage: &Usage{Process: "sentinel-1"}}
	stop := Record{At: at(60), Stop: &Stop{Process: "sentinel-1", State: "exit status 1"}}
	for name, tc := range map[string]struct {
		records []Record
		failed  int
	}{
		"Ended":      {[]Record{exit, stop}, 0},
		"RunsAgain":  {[]Record{exit, seen, stop}, 1},
		"NeverEnded": {[]Record{seen, stop}, 1},
	} {
		if got := CheckGracefulStops(Config{StopTimeout: time.Minute}, tc.records); len(got.Violations) != tc.failed {
			t.Errorf("%s: the violations %q, want %d", name, got.Violations, tc.failed)
		}
	}
}
