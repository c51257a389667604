package pgstore_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
)

// countLanes is the model of CountEventsInBuckets for the tenant red.
func countLanes(events []timeline.Event, q *timeline.BucketQuery) timeline.Buckets {
	type place struct{ name, cluster string }
	lanes := map[place]*timeline.LaneCounts{}
	totals := map[place]int64{}
	for i := range events {
		e := &events[i]
		var at place
		switch q.By {
		case timeline.LaneCluster:
			at.name = e.Cluster
		case timeline.LaneNode:
			at = place{e.Node, e.Cluster}
		case timeline.LaneActor:
			at.name = e.Actor
		}
		if at.name == "" || e.Tenant != "red" || !q.Matches(&e.Facts) || e.At.Before(q.Since) || !e.At.Before(q.Until) {
			continue
		}
		if lanes[at] == nil {
			lanes[at] = &timeline.LaneCounts{Name: at.name, Cluster: at.cluster}
		}
		lane, step := lanes[at], int(e.At.Sub(q.Since)/q.Step)
		n := slices.IndexFunc(lane.Steps, func(s timeline.StepCount) bool { return s.Step == step })
		if n < 0 {
			n = len(lane.Steps)
			lane.Steps = append(lane.Steps, timeline.StepCount{Step: step})
		}
		lane.Steps[n].Count++
		if e.Failed {
			lane.Steps[n].Failed++
		}
		totals[at]++
	}
	counted := timeline.Buckets{All: len(lanes)}
	for _, lane := range lanes {
		slices.SortFunc(lane.Steps, func(a, b timeline.StepCount) int { return cmp.Compare(a.Step, b.Step) })
		counted.Lanes = append(counted.Lanes, *lane)
	}
	total := func(l *timeline.LaneCounts) int64 { return totals[place{l.Name, l.Cluster}] }
	slices.SortFunc(counted.Lanes, func(a, b timeline.LaneCounts) int {
		return cmp.Or(cmp.Compare(total(&b), total(&a)), strings.Compare(a.Name, b.Name), strings.Compare(a.Cluster, b.Cluster))
	})
	counted.Lanes = counted.Lanes[:min(q.Lanes, len(counted.Lanes))]
	return counted
}

// TestBucketsAreTheModel compares counts with a model.
func TestBucketsAreTheModel(t *testing.T) {
	d := newTimelineDatabase(t)
	now := time.Now().UTC().Truncate(time.Microsecond)
	var events []timeline.Event
	for i := range 200 {
		e := newEvent(fmt.Sprint(i), 0)
		e.At = now.Add(-time.Duration(i) * 7 * time.Minute)
		e.Cluster, e.Node, e.Actor = fmt.Sprint("c", i%7), fmt.Sprint("n", i%5), fmt.Sprint("a", i*i%11)
		e.Failed, e.DryRun = i%3 == 0, i%4 == 0
		if i%6 == 0 {
			e.Node = ""
		}
		if i%2 == 0 {
			e.Fields = []string{"spec"}
		}
		if i%10 == 0 {
			e.Tenant = "blue"
		}
		events = append(events, e)
	}
	d.append(t, events...)
	rapid.Check(t, func(r *rapid.T) {
		q := timeline.BucketQuery{
			Filter: timeline.Filter{
				Clusters: rapid.SliceOfN(rapid.SampledFrom([]string{"c0", "c1", "c6"}), 0, 2).Draw(r, "clusters"),
				Field:    rapid.SampledFrom([]string{"", "spec"}).Draw(r, "field"),
				Outcome:  rapid.SampledFrom([]string{"", "failed"}).Draw(r, "outcome"),
				Since:    now.Add(-time.Duration(rapid.IntRange(10, 1500).Draw(r, "since")) * time.Minute),
				Until:    now.Add(-time.Duration(rapid.IntRange(0, 9).Draw(r, "until")) * time.Minute),
			},
			By:    rapid.SampledFrom([]timeline.Lane{timeline.LaneCluster, timeline.LaneNode, timeline.LaneActor}).Draw(r, "by"),
			Step:  time.Duration(rapid.IntRange(1, 100_000).Draw(r, "step")) * time.Second,
			Lanes: rapid.IntRange(1, 40).Draw(r, "lanes"),
		}
		got, err := d.CountEventsInBuckets(t.Context(), redEvents(), q)
		if err != nil {
			r.Fatal(err)
		}
		want := countLanes(events, &q)
		if len(want.Lanes) == 0 {
			want.All = 0
		}
		wantEqual(t, "buckets", want, got)
	})
}

// TestPlansOfBoundedRanges checks that a page of several clusters and the counts of a range read
// only their part of many events.
func TestPlansOfBoundedRanges(t *testing.T) {
	d := newTimelineDatabase(t)
	var events []timeline.Event
	for i := range 6000 {
		e := newEvent(fmt.Sprint(i), time.Duration(i)*time.Minute)
		e.Cluster = fmt.Sprint("c", i%200)
		events = append(events, e)
	}
	d.append(t, events...)
	d.exec(t, "analyze timeline.change_event")
	// The partition of a day that is full of events, whatever the time is now.
	row := d.texts(t, `select c.relname || ' ' || to_char(max(e.at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
		from timeline.change_event e join pg_class c on c.oid = e.tableoid group by c.relname order by count(*) desc limit 1`)[0]
	most, lastEvent, _ := strings.Cut(row, " ")
	until, err := time.Parse(time.RFC3339, lastEvent)
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"fleet_api", "fleet_api_all_tenants"} {
		statement, args := pgstore.TimelinePageStatement(timeline.Query{Filter: timeline.Filter{Clusters: []string{"c7", "c8"}}, Limit: 50})
		plan := d.plan(t, role, "set local enable_bitmapscan = off", statement, args)
		if !strings.Contains(plan, most+"_cluster_at_seq_idx") {
			t.Errorf("%s reads events of two clusters by\n%s", role, plan)
		}
		statement, args = pgstore.TimelineBucketsStatement(timeline.BucketQuery{
			Filter: timeline.Filter{Since: until.Add(-time.Hour), Until: until}, By: timeline.LaneCluster, Step: time.Minute, Lanes: 50,
		})
		plan = d.plan(t, role, "set local jit = off", statement, args)
		if !strings.Contains(plan, "Index Scan") || strings.Contains(plan, "Seq Scan on "+most) {
			t.Errorf("%s counts the events of an hour by\n%s", role, plan)
		}
	}
}
