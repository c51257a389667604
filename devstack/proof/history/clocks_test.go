package history

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// newClockFault returns a fault that sets the clock of a target ahead from 100 until 120.
func newClockFault(target string, ahead time.Duration) Record {
	return Record{At: at(120), Fault: &Fault{Kind: ClockFault, Target: target, Start: at(100), End: at(120), Ahead: ahead}}
}

// TestClockFaults holds that a time which a wrong clock explains is no violation, and that one which it does not explain
// is: of another program, from another time, or wrong by more.
func TestClockFaults(t *testing.T) {
	t.Parallel()
	const ahead, behind = 20 * time.Second, -20 * time.Second
	published := func(arrival, updated, published float64) Record {
		return Record{At: at(arrival), Event: &Event{ID: "e4", Collection: clusterCollection, ClusterID: "a", Generation: 2, Reason: "generation changed", Updated: at(updated), Published: at(published)}}
	}
	changed := func(arrival, taken float64) Record {
		return Record{At: at(arrival), Change: &Change{ID: "c9", Source: "fleetloop/cluster-worker", Time: at(taken)}}
	}
	for name, test := range map[string]struct {
		reason  string
		check   Checker
		fault   Record
		records []Record
		want    string // empty means no violation
	}{
		"EventAhead":            {"the sentinel's clock is ahead", CheckTimesInOrder, newClockFault("sentinel-1", ahead), []Record{published(110, 4, 130)}, ""},
		"EventOfRightClock":     {"the other sentinels' clocks are right", CheckTimesInOrder, newClockFault("sentinel-1", ahead), []Record{published(110, 4, 110)}, ""},
		"EventArrivesLate":      {"the broker kept the event", CheckTimesInOrder, newClockFault("sentinel-1", ahead), []Record{published(190, 4, 130)}, ""},
		"EventTooFarAhead":      {"the clock is wrong by less", CheckTimesInOrder, newClockFault("sentinel-1", ahead), []Record{published(110, 4, 133)}, "publishing of event e4"},
		"EventAheadBefore":      {"the clock is right before", CheckTimesInOrder, newClockFault("sentinel-1", ahead), []Record{published(90, 4, 110)}, "publishing of event e4"},
		"EventAheadLater":       {"the clock is right again", CheckTimesInOrder, newClockFault("sentinel-1", ahead), []Record{published(125, 4, 145)}, "publishing of event e4"},
		"EventOfAnotherProgram": {"the clock of a worker is no excuse", CheckTimesInOrder, newClockFault("cluster-worker-1", ahead), []Record{published(110, 4, 130)}, "publishing of event e4"},
		"EventBehind":           {"the event is about a change of its future", CheckTimesInOrder, newClockFault("sentinel-1", behind), []Record{published(110, 109, 90)}, ""},
		"EventTooFarBehind":     {"the clock is wrong by less", CheckTimesInOrder, newClockFault("sentinel-1", behind), []Record{published(110, 109, 87)}, "change of cluster a is at"},
		"DatabaseAhead":         {"the time of the change is that of the database", CheckTimesInOrder, newClockFault("postgresql", ahead), []Record{published(110, 129, 110)}, ""},
		"DatabaseBehind":        {"a later generation has an earlier time", CheckTimesInOrder, newClockFault("postgresql", behind), []Record{published(105, 99, 105), withGeneration(published(106, 84, 106), 3)}, ""},
		"DatabaseTooFarBehind":  {"the clock is wrong by less", CheckTimesInOrder, newClockFault("postgresql", behind), []Record{published(105, 99, 105), withGeneration(published(106, 77, 106), 3)}, "and to 3 at"},
		"ClusterAhead":          {"the times of the cluster are those of the database", CheckTimesInOrder, newClockFault("postgresql", ahead), []Record{seenAt(110, newCluster(at(1), at(125)))}, ""},
		"ReportBehind":          {"the report is older than the cluster", CheckTimesInOrder, newClockFault("adapter-1", behind), []Record{seenAt(200, newCluster(at(100), at(100), Condition{"dns", at(82), at(82)}))}, ""},
		"ReportTooFarBehind":    {"the clock is wrong by less", CheckTimesInOrder, newClockFault("adapter-1", behind), []Record{seenAt(200, newCluster(at(100), at(100), Condition{"dns", at(77), at(82)}))}, "creation of blue-8"},
		"ChangeEventAhead":      {"the worker's clock is ahead", CheckTimesInOrder, newClockFault("cluster-worker-1", ahead), []Record{changed(110, 130)}, ""},
		"ChangeEventOfOthers":   {"the clock of a controller is no excuse", CheckTimesInOrder, newClockFault("node-fault-controller-1", ahead), []Record{changed(110, 130)}, "change event c9"},
		"TimesShownAgain":       {"the clock is set back, and the times are filled twice", CheckRates, newClockFault("sentinel-1", ahead), newEvents(24, func(int) time.Time { return at(115) }), ""},
		"Storm":                 {"the burst and the times that are filled twice are not enough", CheckRates, newClockFault("sentinel-1", ahead), newEvents(27, func(int) time.Time { return at(115) }), "events about clusters"},
		"StormOfWrites":         {"the API server has another clock", CheckRates, newClockFault("cluster-worker-1", ahead), newWrites(5, at(115)), "more writes of Shoots"},
		"ChangeEventBehind":     {"the worker's clock is behind", CheckChangeEventsNotLost, newClockFault("cluster-worker-1", behind), newUpdate(88.5), ""},
		"ChangeEventBefore":     {"the event is about an earlier change", CheckChangeEventsNotLost, newClockFault("cluster-worker-1", behind), newUpdate(82), "no shoot-updated"},
		"TwoIDs":                {"the interval of the first depends on the clock", CheckStableEventIDs, newClockFault("sentinel-1", ahead), []Record{withID(published(110, 108, 109), "x"), withID(published(110, 108, 109), "y")}, ""},
		"ManyIDs":               {"the time is shown twice, and the interval is over", CheckTimesInOrder, newClockFault("sentinel-1", behind), slices.Concat(newAgeEvents("x", 3, 95, 95), newAgeEvents("y", 3, 115, 95)), ""},
		"ManyIDsAtOnce":         {"the clock is wrong for all", CheckTimesInOrder, newClockFault("sentinel-1", ahead), newAgeEvents("x", 5, 110, 130), "was announced 5 times in 0s"},
		"TwoIDsLater":           {"all clocks are right again", CheckStableEventIDs, newClockFault("sentinel-1", ahead), []Record{withID(published(310, 308, 309), "x"), withID(published(310, 308, 309), "y")}, "1 ids more than intervals"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := test.check(testConfig(), slices.Concat(newHistory(), test.records, []Record{test.fault})).Violations
			if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)) {
				t.Errorf("%s: violations %q, want %q", test.reason, got, test.want)
			}
		})
	}
}

// newAgeEvents returns events about the age of a resource that arrive at one time and show one time of publishing.
func newAgeEvents(id string, count int, arrival, published float64) []Record {
	list := newEvents(count, func(int) time.Time { return at(published) })
	for i := range list {
		list[i].At, list[i].Event.ID = at(arrival), id+list[i].Event.ID
	}
	return list
}

func withGeneration(r Record, generation int64) Record {
	r.Event.Generation, r.Event.ID = generation, "e5"
	return r
}

func withID(r Record, id string) Record {
	r.Event.ID, r.Event.ClusterID = id, "z"
	return r
}

func seenAt(seconds float64, r Record) Record {
	r.At = at(seconds)
	return r
}

// newUpdate returns an update of a Shoot from 108 to 109, and its change event with another time.
func newUpdate(told float64) []Record {
	return []Record{
		{At: at(109), Write: &Write{Verb: "patch", Shoot: "s-a", UID: "ua", ClusterID: "a", Generation: 4, Changed: 4, Start: at(108), End: at(109), Status: 200}},
		{At: at(110), Change: &Change{Source: "fleetloop/cluster-worker", Action: "shoot-updated", ClusterID: "a", Time: at(told)}},
	}
}
