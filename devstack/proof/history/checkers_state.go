package history

import (
	"strings"
	"time"
)

// CheckExclusivity checks R6: no cluster has two Shoots at any time, and no Shoot returns to an older
// generation of its cluster.
func CheckExclusivity(_ Config, records []Record) Result {
	res := Result{Promise: "R6 syncs are exclusive"}
	names, sent := map[string]string{}, map[string]*Write{}
	for _, w := range writesInOrder(records) {
		res.Checked++
		if before := names[w.ClusterID]; before != "" && before != w.Shoot {
			res.fail("cluster %s has the Shoots %s and %s", w.ClusterID, before, w.Shoot)
		}
		names[w.ClusterID] = w.Shoot
		if w.Verb == "delete" || w.UID == "" {
			continue
		}
		// Concurrent requests have no order.
		if before := sent[w.UID]; before != nil && before.Generation > w.Generation && before.End.Before(w.Start) {
			res.fail("Shoot %s went back from generation %d (%s) to %d (%s) at %s", w.Shoot, before.Generation, before.User, w.Generation, w.User, stamp(w.End))
		}
		if before := sent[w.UID]; before == nil || before.Generation <= w.Generation {
			sent[w.UID] = w
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

// CheckAttempts checks R8: an execution has one Job and changes its target once.
func CheckAttempts(_ Config, records []Record) Result {
	res := Result{Promise: "R8 one Job per attempt"}
	for _, r := range records {
		e := r.Execution
		if e == nil {
			continue
		}
		res.Checked++
		if e.Jobs > 1 || e.TargetChanges > 1 {
			res.fail("execution %s has %d Jobs and changed its target %d times", e.Name, e.Jobs, e.TargetChanges)
		}
	}
	return res
}

// CheckBudget checks R10: never are more nodes cordoned than the budget allows, every acknowledged recovery
// ends in an uncordon, and the sink received each cordon and uncordon.
func CheckBudget(cfg Config, records []Record) Result {
	res := Result{Promise: "R10 budget and recovery"}
	cordoned, told := map[string]bool{}, map[string]map[string]bool{}
	done := map[string]int{}
	healthy := map[string]bool{}
	for _, r := range records {
		switch {
		case r.Node != nil:
			res.Checked++
			if cordoned[r.Node.Name] = r.Node.Cordoned; !r.Node.Cordoned {
				delete(cordoned, r.Node.Name)
				done["uncordon "+r.Node.Name]++
				continue
			}
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

// CheckShards checks R17: at the end all replicas share the clusters, and the parts add up to all of
// them. CheckWakeUps proves that there is no gap, so equal sums prove that there is no overlap.
func CheckShards(cfg Config, records []Record) Result {
	res := Result{Promise: "R17 one sentinel per resource"}
	clusters, owned := 0, 0
	var names []string
	for _, r := range records {
		if r.Cluster != nil {
			clusters++
		}
		if s := r.Sentinel; s != nil {
			names = append(names, s.Name)
			owned += s.Owned
			if s.Owned == 0 && cfg.Sentinels > 0 {
				res.fail("sentinel %s watches nothing", s.Name)
			}
		}
	}
	res.Checked = clusters
	if len(names) != cfg.Sentinels {
		res.fail("%d sentinels share the clusters (%s), want %d", len(names), strings.Join(names, ", "), cfg.Sentinels)
	}
	if owned != clusters {
		res.fail("the sentinels watch %d clusters in total, the API has %d", owned, clusters)
	}
	return res
}

// CheckTenants checks R19: a tenant reads only its own clusters, and changes no others. The workload
// names a cluster after its tenant.
func CheckTenants(_ Config, records []Record) Result {
	res := Result{Promise: "R19 tenants are separate"}
	for _, r := range records {
		if q := r.Read; q != nil {
			res.Checked++
			for _, name := range q.Names {
				if !strings.HasPrefix(name, q.Tenant+"-") {
					res.fail("tenant %s read cluster %s at %s", q.Tenant, name, stamp(r.At))
				}
			}
		}
		if q := r.Request; q != nil && q.Op == Trespass {
			res.Checked++
			if q.Outcome == OK {
				res.fail("tenant %s changed cluster %s of another tenant at %s", q.Tenant, q.Name, stamp(q.End))
			}
		}
	}
	return res
}

// takeover is the longest time after a freeze in which a controller may end itself, because it has lost
// the leadership meanwhile.
const takeover = 30 * time.Second

// CheckExits checks that no process ends unless a fault ends it.
func CheckExits(_ Config, records []Record) Result {
	res := Result{Promise: "no process ends by itself"}
	thawed := map[string]time.Time{}
	for _, r := range records {
		if f := r.Fault; f != nil && f.Kind == "freeze" {
			thawed[f.Target] = f.End
		}
		if r.Fault != nil {
			res.Checked++
			if r.Fault.Error != "" {
				res.fail("%s of %s at %s: %s", r.Fault.Kind, r.Fault.Target, stamp(r.Fault.Start), r.Fault.Error)
			}
		}
		if r.Exit != nil && r.At.Sub(thawed[r.Exit.Process]) > takeover {
			res.fail("%s ended at %s: %s", r.Exit.Process, stamp(r.At), r.Exit.State)
		}
	}
	return res
}
