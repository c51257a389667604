package history

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// newEvents returns events about cluster a, which does not change, with new ids.
func newEvents(count int, published func(i int) time.Time) []Record {
	var list []Record
	for i := range count {
		t := published(i)
		list = append(list, Record{At: t, Event: &Event{ID: fmt.Sprintf("new-%d", i), Collection: "clusters", ClusterID: "a", Generation: 2, Reason: "max age expired (not ready)", Updated: at(4), Published: t}})
	}
	return list
}

// newWrites returns writes that begin at one time.
func newWrites(count int, start time.Time) []Record {
	return slices.Repeat([]Record{{At: start, Write: &Write{Verb: "patch", Shoot: "s-a", Start: start, End: start, Status: 409}}}, count)
}

// newCluster returns the state of another cluster at the end.
func newCluster(created, updated time.Time, conditions ...Condition) Record {
	return Record{At: at(60), Cluster: &Cluster{ID: "e", Name: "blue-8", Generation: 1, Created: created, Updated: updated, Conditions: conditions}}
}

// TestPlantedTimes plants violations of the checkers of rates and clocks.
func TestPlantedTimes(t *testing.T) {
	t.Parallel()
	add := func(more ...Record) []Record { return append(newHistory(), more...) }
	for name, test := range map[string]plantedViolation{
		"Storm": {
			"all is announced at once", CheckRates,
			append(newHistory(), newEvents(6, func(i int) time.Time { return at(200 + float64(i)/10) })...), "at 12:03:20.500 there were 1.0 more events about clusters than the limit of 2 replicas",
		},
		"StormInTheLongRun": {
			"the burst is within the limit, and the rate is not", CheckRates,
			append(newHistory(), newEvents(60, func(i int) time.Time { return at(200 + float64(i)/3) })...), "at 12:03:39.666 there were",
		},
		"StormAfterAStart": {
			"a kill and a stop allow two more bursts", CheckRates,
			add(newEvents(14, func(int) time.Time { return at(30) })...), "more events about clusters than the limit of 2 replicas, which is 8 at once",
		},
		"StormOfWrites": {
			"the workers wrote all at once", CheckRates,
			add(newWrites(5, at(200))...), "2.0 more writes of Shoots",
		},
		"EventFromTheFuture": {
			"the clock of the sentinel is ahead", CheckTimesInOrder,
			add(Record{At: at(30), Event: &Event{ID: "e4", ClusterID: "a", Generation: 2, Updated: at(4), Published: at(40)}}), "publishing of event e4",
		},
		"ChangeAfterItsEvent": {
			"the event is about a change of the future", CheckTimesInOrder,
			add(Record{At: at(30), Event: &Event{ID: "e4", ClusterID: "a", Generation: 2, Updated: at(29), Published: at(20)}}), "change of cluster a is at",
		},
		"ChangeEventFromTheFuture": {
			"the clock of the worker is ahead", CheckTimesInOrder,
			add(Record{At: at(30), Change: &Change{ID: "c9", Time: at(32)}}), "change event c9",
		},
		"ChangeFromTheFuture":      {"the clock of the database is ahead", CheckTimesInOrder, add(newCluster(at(1), at(90))), "last change of blue-8"},
		"ChangeBeforeCreation":     {"the clock was set back", CheckTimesInOrder, add(newCluster(at(40), at(30))), "creation of blue-8"},
		"ClusterWithoutTimes":      {"nothing was read", CheckTimesInOrder, add(newCluster(time.Time{}, at(30))), "has no time"},
		"ReportFromTheFuture":      {"an adapter's clock is ahead", CheckTimesInOrder, add(newCluster(at(1), at(30), Condition{"dns", at(31), at(90)})), "report of condition dns of blue-8"},
		"TransitionAfterReport":    {"no report says so", CheckTimesInOrder, add(newCluster(at(1), at(30), Condition{"dns", at(40), at(35)})), "change of condition dns of blue-8"},
		"TransitionBeforeItsOwner": {"the condition is older than the cluster", CheckTimesInOrder, add(newCluster(at(10), at(30), Condition{"dns", at(2), at(35)})), "creation of blue-8"},
		"AggregateFromTheFuture":   {"the clock of the database is ahead", CheckTimesInOrder, add(newCluster(at(1), at(30), Condition{Name: "Ready", Changed: at(90)})), "change of condition Ready of blue-8"},
		"TimeGoesBack": {
			"a later generation has an earlier time", CheckTimesInOrder,
			add(Record{At: at(30), Event: &Event{ID: "e4", ClusterID: "a", Generation: 3, Updated: at(2), Published: at(20)}}), "changed to generation 2 at 12:00:04.000, and to 3 at 12:00:02.000",
		},
		"HotLoop": {
			"the wait for the next event was negative", CheckTimesInOrder,
			add(newEvents(5, func(i int) time.Time { return at(20 + float64(i)) })...), "cluster a was announced 5 times in 4s",
		},
	} {
		t.Run(name, test.run)
	}
}

// TestRatesAfterStarts holds that a replica that starts again may use another burst, that this holds for a
// while only, and that an event that is delivered twice counts once.
func TestRatesAfterStarts(t *testing.T) {
	t.Parallel()
	start := Record{At: at(300), Exit: &Exit{Process: "sentinel-1"}}
	for name, test := range map[string]struct {
		reason string
		more   []Record
		want   int
	}{
		"NoStart":        {"the limit is 4", newEvents(6, func(int) time.Time { return at(310) }), 1},
		"Start":          {"the limit is 6", append(newEvents(6, func(int) time.Time { return at(310) }), start), 0},
		"TooMany":        {"the limit is 6", append(newEvents(7, func(int) time.Time { return at(310) }), start), 1},
		"LongAgo":        {"nothing is unused any more", append(newEvents(6, func(int) time.Time { return at(361) }), start), 1},
		"Restart":        {"the stop of the process counts", append(newEvents(6, func(int) time.Time { return at(310) }), Record{Fault: &Fault{Kind: "restart", Target: "sentinel-1", End: at(300)}}), 1},
		"Later":          {"the start comes afterwards", append(newEvents(6, func(int) time.Time { return at(299) }), start), 1},
		"AnotherOne":     {"a worker publishes nothing", append(newEvents(6, func(int) time.Time { return at(310) }), Record{At: at(300), Exit: &Exit{Process: "cluster-worker-1"}}), 1},
		"DeliveredTwice": {"the broker sent them again", slices.Repeat(newEvents(4, func(int) time.Time { return at(310) }), 3), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := CheckRates(testConfig(), append(newHistory(), test.more...)).Violations; len(got) != test.want {
				t.Errorf("%s: violations %q", test.reason, got)
			}
		})
	}
}
