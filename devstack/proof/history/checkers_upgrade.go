package history

// upgradeSteps is the number of steps: the schema, forward, back, and forward again.
const upgradeSteps = 4

// CheckUpgrade checks that users and monitors notice nothing of an upgrade. A request may only fail if a
// user has deleted the cluster or node pool, or without an answer. All wanted executions run, and the others wait for
// an approval unless the policies changed after the request.
func CheckUpgrade(_ Config, records []Record) Result {
	res := Result{Promise: "R14 upgrades are unnoticed"}
	deleted := map[string]bool{}
	steps := 0
	for _, r := range records {
		if r.Request.isDeletion() {
			deleted[r.Request.resource()] = true
		}
		if r.Fault != nil && r.Fault.Kind == "upgrade" && r.Fault.Error == "" {
			steps++
		}
	}
	if steps < upgradeSteps {
		res.fail("the upgrade completed %d of %d steps", steps, upgradeSteps)
	}
	for _, r := range records {
		switch {
		case r.Request != nil && r.Request.Op != Trespass:
			checkRequestNotFailed(&res, r.Request, deleted[r.Request.ClusterID] || deleted[r.Request.PoolID])
		case r.NodeReport != nil:
			res.Checked++
			if n := r.NodeReport; !n.Acknowledged {
				res.fail("report of node %s at %s: %s", n.Node, stamp(r.At), n.Error)
			}
		case r.Execution != nil:
			checkApprovedOrStillWaiting(&res, r.Execution)
		}
	}
	return res
}

func checkRequestNotFailed(res *Result, q *Request, deleted bool) {
	res.Checked++
	lost := q.Outcome == Unknown && q.Status == 0
	if q.Outcome != OK && !deleted && !lost {
		res.fail("%s of %s at %s: %s", q.Op, q.Name, stamp(q.End), q.Error)
	}
}

func checkApprovedOrStillWaiting(res *Result, e *Execution) {
	res.Checked++
	switch {
	case e.Wanted && !e.Approved:
		res.fail("execution %s was not approved: %s", e.Name, e.Error)
	case !e.Wanted && !e.Refused && e.Phase != "waiting_approval":
		res.fail("execution %s is %s, want that it waits for an approval", e.Name, e.Phase)
	}
}
