package history

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// CheckTimesInOrder checks R13, as far as a history shows it: no time is in the future, the times of a resource
// rise with its generations, no change precedes the creation, and no wait is negative: a cluster without
// changes is not announced again before its interval has passed.
func CheckTimesInOrder(cfg Config, records []Record) Result {
	res := Result{Promise: "R13 clocks are safe"}
	for _, r := range records {
		switch {
		case r.Event != nil && !r.Event.Published.IsZero():
			res.Checked++
			e := r.Event
			res.wantOrder(cfg, e.Published, r.At, "publishing of event "+e.ID, "its arrival")
			res.wantOrder(cfg, e.Updated, e.Published, "change of cluster "+e.ClusterID, "the event "+e.ID+" about it")
		case r.Change != nil && !r.Change.Time.IsZero():
			res.Checked++
			res.wantOrder(cfg, r.Change.Time, r.At, "change event "+r.Change.ID, "its arrival")
		case r.Cluster != nil:
			res.Checked++
			checkClusterTimes(cfg, &res, r.Cluster, r.At)
		}
	}
	checkGenerationTimes(cfg, &res, records)
	checkAgeEventIntervals(cfg, &res, records)
	return res
}

// wantOrder fails if a time is later than another one by more than the clocks may differ.
func (r *Result) wantOrder(cfg Config, before, after time.Time, earlier, later string) {
	if early := before.Sub(after); early > cfg.ClockSkew {
		r.fail("%s is at %s, %s after %s", earlier, stamp(before), early, later)
	}
}

func checkClusterTimes(cfg Config, res *Result, c *Cluster, now time.Time) {
	if c.Created.IsZero() || c.Updated.IsZero() {
		res.fail("%s (%s) has no time of its creation or change", c.Name, c.ID)
		return
	}
	res.wantOrder(cfg, c.Created, c.Updated, "creation of "+c.Name, "its last change")
	res.wantOrder(cfg, c.Updated, now, "last change of "+c.Name, "the present")
	for _, o := range c.Conditions {
		name := "condition " + o.Name + " of " + c.Name
		res.wantOrder(cfg, c.Created, o.Changed, "creation of "+c.Name, "the change of "+name)
		res.wantOrder(cfg, o.Changed, now, "change of "+name, "the present")
		if !o.Updated.IsZero() {
			res.wantOrder(cfg, o.Changed, o.Updated, "change of "+name, "its last report")
			res.wantOrder(cfg, o.Updated, now, "report of "+name, "the present")
		}
	}
}

// checkGenerationTimes checks that a generation was never seen with a time before that of an earlier one.
func checkGenerationTimes(cfg Config, res *Result, records []Record) {
	restore := findRestore(records)
	byCluster, lostByCluster := map[string][]*Event{}, map[string][]*Event{}
	for _, r := range records {
		e := r.Event
		if e == nil || e.Updated.IsZero() {
			continue
		}
		part := restore.partOf(e)
		if part != lostGeneration {
			byCluster[e.ClusterID] = append(byCluster[e.ClusterID], e)
		}
		if restore != nil && part != newGeneration {
			lostByCluster[e.ClusterID] = append(lostByCluster[e.ClusterID], e)
		}
	}
	checkGenerationTimesPerCluster(cfg, res, byCluster)
	checkGenerationTimesPerCluster(cfg, res, lostByCluster)
}

func checkGenerationTimesPerCluster(cfg Config, res *Result, byCluster map[string][]*Event) {
	for id, list := range byCluster {
		slices.SortStableFunc(list, func(a, b *Event) int { return cmp.Compare(a.Generation, b.Generation) })
		for i, e := range list[1:] {
			if before := list[i]; before.Generation < e.Generation && before.Updated.Sub(e.Updated) > cfg.ClockSkew {
				res.fail("cluster %s changed to generation %d at %s, and to %d at %s", id, before.Generation, stamp(before.Updated), e.Generation, stamp(e.Updated))
			}
		}
	}
}

// ageReason is part of the reason of an event about a cluster that is not ready and has not changed.
const ageReason = "(not ready)"

// checkAgeEventIntervals checks that the ids of events about an unchanged cluster are no more than its intervals allow.
// An interval counts from the oldest report, so each report of an adapter can begin another one; at the
// border of two intervals two ids are close.
func checkAgeEventIntervals(cfg Config, res *Result, records []Record) {
	type resource struct {
		id         string
		generation int64
		isAfter    bool // the reports of adapters begin again after a restore
	}
	restore := findRestore(records)
	seen, published := map[string]bool{}, map[resource][]time.Time{}
	for _, r := range records {
		if e := r.Event; e != nil && !e.Published.IsZero() && strings.Contains(e.Reason, ageReason) && !seen[e.ID] {
			seen[e.ID] = true
			key := resource{e.ClusterID, e.Generation, restore.isAfter(e.Published)}
			published[key] = append(published[key], e.Published)
		}
	}
	most := 2 * max(1, len(cfg.Adapters))
	for key, list := range published {
		slices.SortFunc(list, time.Time.Compare)
		for i := most; i < len(list); i++ {
			if took := list[i].Sub(list[i-most]); took < cfg.Interval*9/10 {
				res.fail("cluster %s was announced %d times in %s until %s without a change, the interval is %s", key.id, most+1, took, stamp(list[i]), cfg.Interval)
				break
			}
		}
	}
}
