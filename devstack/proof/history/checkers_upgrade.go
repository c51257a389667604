package history

// CheckUpgrade checks that users and monitors notice nothing of an upgrade. A request may only fail if a
// user has deleted the cluster, or without an answer. All wanted executions run, and the others wait for
// an approval unless the policies changed after the request.
func CheckUpgrade(cfg Config, records []Record) Result {
	res := Result{Promise: "upgrades are unnoticed"}
	if !cfg.Upgrade {
		return res
	}
	deleted := map[string]bool{}
	steps := 0
	for _, r := range records {
		if q := r.Request; q != nil && q.Op == Delete {
			deleted[q.ClusterID] = true
		}
		if r.Fault != nil && r.Fault.Kind == "upgrade" && r.Fault.Error == "" {
			steps++
		}
	}
	if steps < upgradeSteps {
		res.fail("the upgrade completed %d of %d steps", steps, upgradeSteps)
	}
	for _, r := range records {
		if q := r.Request; q != nil && q.Op != Trespass {
			res.Checked++
			lost := q.Outcome == Unknown && q.Status == 0
			if q.Outcome != OK && !deleted[q.ClusterID] && !lost {
				res.fail("%s of %s at %s: %s", q.Op, q.Name, stamp(q.End), q.Error)
			}
		}
		if n := r.NodeReport; n != nil {
			res.Checked++
			if !n.Acknowledged {
				res.fail("report of node %s at %s: %s", n.Node, stamp(r.At), n.Error)
			}
		}
		if e := r.Execution; e != nil {
			res.Checked++
			switch {
			case e.Wanted && !e.Approved:
				res.fail("execution %s was not approved: %s", e.Name, e.Error)
			case !e.Wanted && !e.Refused && e.Phase != "waiting_approval":
				res.fail("execution %s is %s, want that it waits for an approval", e.Name, e.Phase)
			}
		}
	}
	return res
}

// upgradeSteps is the number of steps: the schema, forward, back, and forward again.
const upgradeSteps = 4
