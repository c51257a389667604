package history

import (
	"slices"
	"strings"
	"time"
)

// CheckSingleShootAndOrder checks R6: no cluster has two Shoots at any time, and no Shoot returns to an older
// generation of its cluster.
func CheckSingleShootAndOrder(_ Config, records []Record) Result {
	res := Result{Promise: "R6 syncs are exclusive"}
	shoots, newest := map[string]string{}, map[string]*Write{} // by cluster, and by UID of the Shoot
	for _, w := range successfulWritesInOrder(records) {
		res.Checked++
		if other := shoots[w.ClusterID]; other != "" && other != w.Shoot {
			res.fail("cluster %s has the Shoots %s and %s", w.ClusterID, other, w.Shoot)
		}
		shoots[w.ClusterID] = w.Shoot
		if w.Verb == "delete" || w.UID == "" {
			continue
		}
		before := newest[w.UID]
		switch {
		case before == nil || before.Generation <= w.Generation:
			newest[w.UID] = w
		case before.End.Before(w.Start): // concurrent requests have no order
			res.fail("Shoot %s went back from generation %d (%s) to %d (%s) at %s", w.Shoot, before.Generation, before.User, w.Generation, w.User, stamp(w.End))
		}
	}
	return res
}

// CheckApprovals checks R7: nothing is executed without an approval, and what was approved is executed.
func CheckApprovals(_ Config, records []Record) Result {
	res := Result{Promise: "R7 no execution unapproved"}
	for _, r := range records {
		e := r.Execution
		if e == nil {
			continue
		}
		res.Checked++
		switch {
		case e.Forged:
			res.fail("the API server accepted a forged approval of execution %s", e.Name)
		case !e.Wanted && (e.TargetChanges > 0 || e.Jobs > 0):
			res.fail("execution %s was not approved, and has %d Jobs and changed its target %d times", e.Name, e.Jobs, e.TargetChanges)
		case e.Approved && e.Outcome != "Succeeded":
			res.fail("execution %s was approved, and is %q with outcome %q", e.Name, e.Phase, e.Outcome)
		}
	}
	return res
}

// CheckExecutedOnce checks R8: an execution has one Job and changes its target once. Its rollback changes the
// target again.
func CheckExecutedOnce(_ Config, records []Record) Result {
	res := Result{Promise: "R8 one Job per attempt"}
	for _, r := range records {
		e := r.Execution
		if e == nil {
			continue
		}
		res.Checked++
		allowed := int64(1)
		if e.Rollback != nil {
			allowed++
		}
		if e.Jobs > 1 || e.TargetChanges > allowed {
			res.fail("execution %s has %d Jobs and changed its target %d times", e.Name, e.Jobs, e.TargetChanges)
		}
	}
	return res
}

// CheckRollbacks checks R9: each approved plan says how to roll back, and each approved rollback restores the
// target.
func CheckRollbacks(_ Config, records []Record) Result {
	res := Result{Promise: "R9 rollback restores"}
	for _, r := range records {
		e := r.Execution
		if e == nil || !e.Approved {
			continue
		}
		res.Checked++
		if !e.RollbackPlanned {
			res.fail("the plan of execution %s was approved without saying how to roll it back", e.Name)
		}
		if b := e.Rollback; b != nil && b.Approved {
			res.Checked++
			if b.Outcome != "Succeeded" || !b.Restored {
				res.fail("the rollback of execution %s was approved, and is %q with outcome %q, target restored: %t", e.Name, b.Phase, b.Outcome, b.Restored)
			}
		}
	}
	return res
}

// CheckGracefulStops checks R11: a process that gets SIGTERM ends in time and without an error. CheckWakeUps and
// CheckChangeEventsNotLost prove that it loses nothing.
func CheckGracefulStops(cfg Config, records []Record) Result {
	res := Result{Promise: "R11 graceful stop"}
	exited := map[string]bool{} // processes that ended by themselves, until they are seen again
	for _, r := range records {
		switch {
		case r.Exit != nil:
			exited[r.Exit.Process] = true
		case r.Usage != nil:
			exited[r.Usage.Process] = false
		}
		s := r.Stop
		if s == nil || exited[s.Process] { // there was nothing to stop
			continue
		}
		res.Checked++
		if s.Took > cfg.StopTimeout || s.State != cleanExit {
			res.fail("%s got SIGTERM at %s and ended after %s: %s", s.Process, stamp(r.At.Add(-s.Took)), s.Took.Round(time.Millisecond), s.State)
		}
	}
	return res
}

// cleanExit is the state of a process that ended without an error.
const cleanExit = "exit status 0"

// CheckUsage checks R12: no process exceeds its memory limit, and at the end it has at most twice the
// goroutines and open files of its first minute, and some more.
func CheckUsage(cfg Config, records []Record) Result {
	const some = 100
	res := Result{Promise: "R12 bounded resources"}
	// By process: the maximum of the first minute, the last usage, and the time of the first.
	first, last, began := map[string]*Usage{}, map[string]*Usage{}, map[string]time.Time{}
	recorded := map[string]bool{} // by program
	for _, r := range records {
		u := r.Usage
		if u == nil {
			continue
		}
		res.Checked++
		recorded[programOf(u.Process)] = true
		if limit := cfg.MemoryLimits[programOf(u.Process)]; limit > 0 && u.Memory > limit {
			res.fail("%s uses %d MiB at %s, the limit is %d MiB", u.Process, u.Memory>>20, stamp(r.At), limit>>20)
		}
		if first[u.Process] == nil {
			first[u.Process], began[u.Process] = &Usage{}, r.At
		}
		if f := first[u.Process]; r.At.Sub(began[u.Process]) < time.Minute {
			f.Goroutines, f.Files = max(f.Goroutines, u.Goroutines), max(f.Files, u.Files)
		}
		last[u.Process] = u
	}
	for program := range cfg.MemoryLimits {
		if !recorded[program] {
			res.fail("no usage of %s was recorded", program)
		}
	}
	for name, u := range last {
		if f := first[name]; u.Goroutines > 2*f.Goroutines+some || u.Files > 2*f.Files+some {
			res.fail("%s has %d goroutines and %d open files at the end, at most %d and %d in the first minute", name, u.Goroutines, u.Files, f.Goroutines, f.Files)
		}
	}
	return res
}

// programOf returns the name of a process without the number of its replica.
func programOf(process string) string { return process[:max(0, strings.LastIndexByte(process, '-'))] }

// CheckBudget checks R10: never are more nodes cordoned than the budget allows, every acknowledged recovery
// ends in an uncordon, and the sink received each cordon and uncordon.
func CheckBudget(cfg Config, records []Record) Result {
	res := Result{Promise: "R10 budget and recovery"}
	cordoned, healthy := map[string]bool{}, map[string]bool{} // by node
	done := map[string]int{}                                  // by action and node
	told := map[string]map[string]bool{}                      // ids of change events, by action and node
	for _, r := range records {
		switch {
		case r.Node != nil && !r.Node.Cordoned:
			res.Checked++
			delete(cordoned, r.Node.Name)
			done["uncordon "+r.Node.Name]++
		case r.Node != nil:
			res.Checked++
			cordoned[r.Node.Name] = true
			done["cordon "+r.Node.Name]++
			if len(cordoned) > cfg.Budget {
				res.fail("%d nodes are cordoned at %s, the budget is %d", len(cordoned), stamp(r.At), cfg.Budget)
			}
		case r.NodeReport != nil && r.NodeReport.Acknowledged:
			healthy[r.NodeReport.Node] = r.NodeReport.Healthy
		case r.Change != nil && r.Change.Node != "":
			key := r.Change.Action + " " + r.Change.Node
			if told[key] == nil {
				told[key] = map[string]bool{}
			}
			told[key][r.Change.ID] = true
		}
	}
	for name := range cordoned {
		if healthy[name] {
			res.fail("node %s has recovered and is still cordoned", name)
		}
	}
	for what, count := range done {
		if len(told[what]) < count {
			res.fail("%s happened %d times, and the sink received %d change events", what, count, len(told[what]))
		}
	}
	return res
}

// CheckShardsCoverAll checks R17: at the end all replicas share the resources, and the parts add up to all of
// them. CheckWakeUps proves that there is no gap, so equal sums prove that there is no overlap.
func CheckShardsCoverAll(cfg Config, records []Record) Result {
	res := Result{Promise: "R17 one sentinel per resource"}
	exist, owned, names := map[string]int{}, map[string]int{}, map[string][]string{}
	for _, r := range records {
		if r.Cluster != nil {
			exist[clusterCollection]++
		}
		if r.Pool != nil {
			exist[poolCollection]++
		}
		if s := r.Sentinel; s != nil {
			names[s.Collection] = append(names[s.Collection], s.Name)
			owned[s.Collection] += s.Owned
			if s.Owned == 0 && s.Collection == clusterCollection && cfg.Sentinels > 0 {
				res.fail("sentinel %s watches nothing", s.Name)
			}
		}
	}
	for _, collection := range []string{clusterCollection, poolCollection} {
		res.Checked += exist[collection]
		if len(names[collection]) != cfg.Sentinels {
			res.fail(
				"%d sentinels share the %s (%s), want %d",
				len(names[collection]),
				collection,
				strings.Join(names[collection], ", "),
				cfg.Sentinels,
			)
		}
		if owned[collection] != exist[collection] {
			res.fail("the sentinels watch %d %s in total, the API has %d", owned[collection], collection, exist[collection])
		}
	}
	return res
}

// The collections that sentinels watch.
const (
	clusterCollection = "clusters"
	poolCollection    = "nodepools"
)

// CheckTenants checks R19: a tenant reads only its own clusters and node pools, and changes no others. The
// workload names them after their tenant.
func CheckTenants(_ Config, records []Record) Result {
	res := Result{Promise: "R19 tenants are separate"}
	for _, r := range records {
		if q := r.Read; q != nil {
			res.Checked++
			for _, name := range q.Names {
				if !strings.HasPrefix(name, q.Tenant+"-") {
					res.fail("tenant %s read %s at %s", q.Tenant, name, stamp(r.At))
				}
			}
		}
		if q := r.Request; q != nil && q.Op == Trespass {
			res.Checked++
			if q.Outcome == OK {
				res.fail("tenant %s changed %s of another tenant at %s", q.Tenant, q.Name, stamp(q.End))
			}
		}
	}
	return res
}

// CheckTokensNotRefused checks that no request of the workload is refused for its token, also while the tokens are
// replaced.
func CheckTokensNotRefused(_ Config, records []Record) Result {
	res := Result{Promise: "no valid token is refused"}
	for _, r := range records {
		if q := r.Request; q != nil {
			res.Checked++
			if q.Status == unauthorized {
				res.fail("%s of %s at %s: %s", q.Op, q.Name, stamp(q.End), q.Error)
			}
		}
	}
	return res
}

// unauthorized is the HTTP status for an invalid token.
const unauthorized = 401

// takeover is the longest time after a fault in which a leader may end itself, because it could not renew
// its Lease meanwhile.
const takeover = 30 * time.Second

// CheckNoUnexpectedExits checks that no process ends unless a fault ends it.
func CheckNoUnexpectedExits(cfg Config, records []Record) Result {
	res := Result{Promise: "no unexpected exits"}
	var faults []*Fault
	for _, r := range records {
		if s := r.Silence; s != nil { // the effect on a Lease is that of a fault
			faults = append(faults, &Fault{Kind: "host", Target: s.Server, Start: s.Start, End: s.End})
		}
		if f := r.Fault; f != nil {
			faults = append(faults, f)
			res.Checked++
			if f.Error != "" {
				res.fail("%s of %s at %s: %s", f.Kind, f.Target, stamp(f.Start), f.Error)
			}
		}
	}
	for _, r := range records {
		if r.Exit == nil {
			continue
		}
		isLeader := slices.Contains(cfg.Leaders, programOf(r.Exit.Process))
		if !isLeader || !mayHaveLostLease(r.Exit.Process, r.At, faults) {
			res.fail("%s ended at %s: %s", r.Exit.Process, stamp(r.At), r.Exit.State)
		}
	}
	return res
}

// mayHaveLostLease reports whether a fault kept a process from renewing its Lease before a time.
func mayHaveLostLease(process string, at time.Time, faults []*Fault) bool {
	for _, f := range faults {
		isStopped := f.Kind == "host" || f.Kind == "freeze" && f.Target == process
		if isStopped && !at.Before(f.Start) && at.Sub(f.End) < takeover {
			return true
		}
	}
	return false
}
