package history

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"
)

// CheckTimesInOrder checks R13, as far as a history shows it: no time is in the future, the times of a resource
// rise with its generations, no change precedes the creation, and no wait is negative: a cluster without
// changes is not announced again before its interval has passed.
func CheckTimesInOrder(cfg Config, records []Record) Result {
	res := Result{Promise: "R13 clocks are safe"}
	order := timeOrder{&res, readClocks(cfg, records)}
	for _, r := range records {
		arrival := shownTime{Time: r.At}
		switch {
		case r.Event != nil && !r.Event.Published.IsZero():
			res.Checked++
			e := r.Event
			published := shownTime{e.Published, []string{sentinelProgram}}
			order.want(published, arrival, "publishing of event "+e.ID, "its arrival")
			order.want(byDatabase(e.Updated), published, "change of cluster "+e.ClusterID, "the event "+e.ID+" about it")
		case r.Change != nil && !r.Change.Time.IsZero():
			res.Checked++
			order.want(r.Change.shownTime(), arrival, "change event "+r.Change.ID, "its arrival")
		case r.Cluster != nil:
			res.Checked++
			order.wantInCluster(r.Cluster, arrival)
		}
	}
	order.wantInGenerations(records)
	checkAgeEventsNotTooOften(cfg, &res, records)
	return res
}

// byDatabase returns a time of a resource.
func byDatabase(t time.Time) shownTime { return shownTime{t, []string{databaseProgram}} }

// byReporter returns a time of a condition. The fleet API replaces that of a report which is ahead of the database.
func byReporter(t time.Time) shownTime {
	return shownTime{t, []string{databaseProgram, "adapter", workerProgram}}
}

// shownTime returns the time of a change event with the program that took it.
func (c *Change) shownTime() shownTime {
	program := "node-fault-controller"
	if path.Dir(c.Source) == "fleetloop" {
		program = path.Base(c.Source)
	}
	return shownTime{c.Time, []string{program}}
}

// A timeOrder compares times that clocks showed.
type timeOrder struct {
	res    *Result
	clocks clocks
}

// want fails if a time is later than another one by more than the clocks may differ, whichever replica took it.
func (o timeOrder) want(before, after shownTime, earlier, later string) {
	if early := o.clocks.earliest(before).Sub(o.clocks.latest(after)); early > o.clocks.skew {
		o.res.fail("%s is at %s, %s after %s", earlier, stamp(before.Time), early, later)
	}
}

func (o timeOrder) wantInCluster(c *Cluster, present shownTime) {
	if c.Created.IsZero() || c.Updated.IsZero() {
		o.res.fail("%s (%s) has no time of its creation or change", c.Name, c.ID)
		return
	}
	created, updated := byDatabase(c.Created), byDatabase(c.Updated)
	o.want(created, updated, "creation of "+c.Name, "its last change")
	o.want(updated, present, "last change of "+c.Name, "the present")
	for _, condition := range c.Conditions {
		name := "condition " + condition.Name + " of " + c.Name
		changed, reported := byReporter(condition.Changed), byReporter(condition.Updated)
		o.want(created, changed, "creation of "+c.Name, "the change of "+name)
		o.want(changed, present, "change of "+name, "the present")
		if !condition.Updated.IsZero() {
			o.want(changed, reported, "change of "+name, "its last report")
			o.want(reported, present, "report of "+name, "the present")
		}
	}
}

// wantInGenerations checks that a generation was never seen with a time before that of an earlier one.
func (o timeOrder) wantInGenerations(records []Record) {
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
	o.wantInGenerationsOfClusters(byCluster)
	o.wantInGenerationsOfClusters(lostByCluster)
}

func (o timeOrder) wantInGenerationsOfClusters(byCluster map[string][]*Event) {
	for id, list := range byCluster {
		slices.SortStableFunc(list, func(a, b *Event) int { return cmp.Compare(a.Generation, b.Generation) })
		for i, e := range list[1:] {
			before := list[i]
			early := o.clocks.earliest(byDatabase(before.Updated)).Sub(o.clocks.latest(byDatabase(e.Updated)))
			if before.Generation < e.Generation && early > o.clocks.skew {
				o.res.fail(
					"cluster %s changed to generation %d at %s, and to %d at %s",
					id,
					before.Generation,
					stamp(before.Updated),
					e.Generation,
					stamp(e.Updated),
				)
			}
		}
	}
}

// ageReason is part of the reason of an event about a cluster that is not ready and has not changed.
const ageReason = "(not ready)"

// checkAgeEventsNotTooOften checks that the ids of events about an unchanged cluster are no more than its intervals allow.
// An interval counts from the oldest report, so each report of an adapter can begin another one; at the
// border of two intervals two ids are close.
func checkAgeEventsNotTooOften(cfg Config, res *Result, records []Record) {
	type resource struct {
		id         string
		generation int64
		isAfter    bool // the reports of adapters begin again after a restore
	}
	restore, clocks := findRestore(records), readClocks(cfg, records)
	seen, published := map[string]bool{}, map[resource][]time.Time{}
	for _, r := range records {
		e := r.Event
		if e == nil || e.Published.IsZero() || !strings.Contains(e.Reason, ageReason) || seen[e.ID] {
			continue
		}
		seen[e.ID] = true
		at := clocks.latestBefore(shownTime{e.Published, []string{sentinelProgram}}, r.At)
		key := resource{e.ClusterID, e.Generation, restore.isAfter(at)}
		published[key] = append(published[key], at)
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
