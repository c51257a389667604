package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A Result is the result of one checker.
type Result struct {
	Promise    string
	Checked    int // items
	Violations []string
}

func (r *Result) fail(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
}

// A Config names what the checkers expect.
type Config struct {
	Run Run // for the report

	Adapters  []string      // that must report on each cluster
	Sentinels int           // number of replicas
	Budget    int           // of nodes out of service
	Interval  time.Duration // of the sentinel for clusters that are not ready
	Upgrade   bool          // the release changes, and nothing else fails
	Restore   bool          // the database is restored to an older point once
	ClockSkew time.Duration // how far the clocks may differ

	Rates map[string]Rate // by name of the program

	Leaders      []string         // programs that end when they lose their Lease
	MemoryLimits map[string]int64 // of the containers in the chart, in bytes, by name of the program
	StopTimeout  time.Duration    // from SIGTERM to the end of a process
}

// A Checker checks one promise.
type Checker func(Config, []Record) Result

// Checkers returns the checkers of every history, in the order of the report.
func Checkers() []Checker {
	return []Checker{
		CheckWakeUps, CheckStableEventIDs, CheckRates, CheckChangeEventsNotLost, CheckConvergence, CheckSingleShootAndOrder, CheckApprovals, CheckExecutedOnce, CheckRollbacks,
		CheckBudget, CheckGracefulStops, CheckUsage, CheckTimesInOrder, CheckShardsCoverAll, CheckTenants, CheckTokensNotRefused, CheckNoUnexpectedExits,
	}
}

// RunAllCheckers runs all checkers that apply.
func RunAllCheckers(cfg Config, records []Record) []Result {
	checkers := Checkers()
	if cfg.Upgrade {
		checkers = append(checkers, CheckUpgrade)
	}
	if cfg.Restore {
		checkers = append(checkers, CheckRestore)
	}
	list := make([]Result, 0, len(checkers))
	for _, check := range checkers {
		list = append(list, check(cfg, records))
	}
	return list
}

// acknowledged reports whether the API acknowledged a change of the workload.
func (r *Request) acknowledged() bool {
	return r != nil && r.Outcome == OK && r.resource() != "" && r.Op != Trespass
}

func (r *Request) isDeletion() bool { return r != nil && (r.Op == Delete || r.Op == DeletePool) }

// resource returns the id of the node pool or the cluster that a request is about.
func (r *Request) resource() string { return cmp.Or(r.PoolID, r.ClusterID) }

// CheckWakeUps checks R1: each acknowledged generation is followed by an event about it or a later one,
// or by a report of an adapter that had read it. At the end each adapter has reported the last generation.
func CheckWakeUps(cfg Config, records []Record) Result {
	res := Result{Promise: "R1 no lost wake-up"}
	restore := findRestore(records)
	announcedEver := findLastAnnounced(records, func(Record) bool { return true })
	announcedAfter := findLastAnnounced(records, func(r Record) bool {
		return r.Event != nil && restore.partOf(r.Event) == newGeneration || r.Report != nil && restore.isAfter(r.At)
	})
	for _, r := range records {
		if q := r.Request; q.acknowledged() && !restore.hasLost(q) {
			res.Checked++
			announced := announcedEver
			if restore.hasNew(q) {
				announced = announcedAfter
			}
			if id := q.resource(); announced[id] < q.Generation {
				res.fail("%s of %s (%s): generation %d acknowledged at %s, last event or report is about generation %d",
					q.Op, q.Name, id, q.Generation, stamp(q.End), announced[id])
			}
		}
		if c := r.Cluster; c != nil {
			res.Checked++
			checkReported(cfg, &res, "cluster "+c.Name, c.Reported, c.Generation)
		}
		if p := r.Pool; p != nil {
			res.Checked++
			checkReported(cfg, &res, "node pool "+p.Name, p.Reported, p.Generation)
		}
	}
	return res
}

// findLastAnnounced returns the highest generation of each cluster and node pool in some events and reports.
func findLastAnnounced(records []Record, counts func(Record) bool) map[string]int64 {
	last := map[string]int64{}
	for _, r := range records {
		switch {
		case r.Event != nil && counts(r):
			last[r.Event.ClusterID] = max(last[r.Event.ClusterID], r.Event.Generation)
		case r.Report != nil && counts(r):
			last[r.Report.ClusterID] = max(last[r.Report.ClusterID], r.Report.Generation)
		}
	}
	return last
}

func checkReported(cfg Config, res *Result, name string, reported map[string]int64, generation int64) {
	for _, adapter := range cfg.Adapters {
		if reported[adapter] != generation {
			res.fail("%s: adapter %s reported generation %d, the last is %d", name, adapter, reported[adapter], generation)
		}
	}
}

// CheckStableEventIDs checks R2: an id belongs to one cluster, generation and rule, and each interval has at most one
// id. The time in an event is that of its publishing. Its interval is that of the decision, which can be
// earlier, so the checker looks for an assignment of ids to intervals. It leaves out the intervals of events around
// faults of clocks.
func CheckStableEventIDs(cfg Config, records []Record) Result {
	type occasion struct {
		cluster    string
		generation int64
		reason     string
		part       int // of a history with a restore
	}
	res := Result{Promise: "R2 stable event ids"}
	restore := findRestore(records)
	occasions := map[string]occasion{}        // by id
	latest := map[occasion]map[string]int64{} // the latest interval of each id
	clocks := readClocks(cfg, records)
	for _, r := range records {
		e := r.Event
		if e == nil {
			continue
		}
		res.Checked++
		o := occasion{e.ClusterID, e.Generation, e.Reason, restore.partOf(e)}
		if before, ok := occasions[e.ID]; ok && before != o {
			res.fail("event %s is about %v and about %v", e.ID, before, o)
		}
		occasions[e.ID] = o
		// Only a new generation counts from a time that the event carries.
		hasTimes := !e.Updated.IsZero() && !e.Published.IsZero()
		if cfg.Interval <= 0 || !hasTimes || !strings.Contains(e.Reason, "generation") || !clocks.isCertain(e.Published, sentinelProgram, databaseProgram) {
			continue
		}
		// The sentinel counts from slightly earlier, so that the first interval tolerates a skew of clocks.
		began := e.Updated.Add(-cfg.Interval / 10)
		interval := int64(max(0, e.Published.Sub(began)) / cfg.Interval)
		if latest[o] == nil {
			latest[o] = map[string]int64{}
		}
		if before, ok := latest[o][e.ID]; !ok || interval < before {
			latest[o][e.ID] = interval
		}
	}
	for o, intervals := range latest {
		if count, first, second := countSurplusIDs(intervals); count > 0 {
			res.fail("%s of generation %d has the ids %s and %s in one interval: %d ids more than intervals", o.cluster, o.generation, first, second, count)
		}
	}
	return res
}

// countSurplusIDs returns how many more ids than intervals exist, and the two earliest ids if that is more than
// none. intervals holds the latest interval that each id can have.
func countSurplusIDs(latestIntervalByID map[string]int64) (count int64, first, second string) {
	ids := slices.SortedFunc(maps.Keys(latestIntervalByID), func(a, b string) int {
		return cmp.Or(cmp.Compare(latestIntervalByID[a], latestIntervalByID[b]), cmp.Compare(a, b))
	})
	free := int64(math.MaxInt64)
	for _, id := range slices.Backward(ids) {
		free = min(free-1, latestIntervalByID[id])
	}
	if len(ids) == 0 || free >= 0 {
		return 0, "", ""
	}
	return -free, ids[0], ids[1]
}

// CheckChangeEventsNotLost checks R4: each creation, change and deletion of a Shoot reaches the sink. If the
// result of a request was lost, a later change event tells of both.
func CheckChangeEventsNotLost(cfg Config, records []Record) Result {
	res := Result{Promise: "R4 change events not lost"}
	restore := findRestore(records)
	told := findLastChanges(readClocks(cfg, records), records)
	remaining := map[string]bool{}
	for _, r := range records {
		if s := r.Shoot; s != nil {
			remaining[s.ClusterID] = true
		}
	}
	generations := map[string]int64{} // of each Shoot, by UID
	created := map[string]*Write{}    // by cluster
	for _, w := range successfulWritesInOrder(records) {
		mayBeUntold := restore.isInGap(w.End)
		switch {
		case w.Status == http.StatusCreated:
			if _, isKept := restore.get(w.ClusterID); isKept || !mayBeUntold {
				created[w.ClusterID] = w
			}
			if mayBeUntold {
				break
			}
			checkShootChangeReceived(&res, told, "shoot-created", w)
		case w.Verb == "patch" && w.Changed > generations[w.UID] && !mayBeUntold:
			checkShootChangeReceived(&res, told, "shoot-updated", w)
		}
		generations[w.UID] = max(generations[w.UID], w.Changed)
	}
	for cluster, w := range created {
		if !remaining[cluster] {
			checkShootChangeReceived(&res, told, "shoot-deleted", w)
		}
	}
	checkSuccessEventsReceived(&res, records)
	return res
}

// checkShootChangeReceived checks that the sink was told of an action after a write began.
func checkShootChangeReceived(res *Result, told map[shootChange]time.Time, action string, w *Write) {
	res.Checked++
	// A change event has a time after its write, in milliseconds.
	if last := told[shootChange{action, w.ClusterID}]; last.Before(w.Start.Truncate(time.Millisecond)) {
		res.fail("the sink received no %s for Shoot %s of cluster %s, generation %d; the write was at %s", action, w.Shoot, w.ClusterID, w.Generation, stamp(w.End))
	}
}

// A shootChange is what change events tell about the Shoot of a cluster.
type shootChange struct{ action, cluster string }

// findLastChanges returns the last time of each change that the sink was told of. A creation and a deletion
// include the updates until then.
func findLastChanges(clocks clocks, records []Record) map[shootChange]time.Time {
	told := map[shootChange]time.Time{}
	for _, r := range records {
		c := r.Change
		if c == nil {
			continue
		}
		last := clocks.latest(c.shownTime())
		for _, action := range []string{c.Action, "shoot-updated"} {
			if o := (shootChange{action, c.ClusterID}); last.After(told[o]) {
				told[o] = last
			}
		}
	}
	return told
}

// checkSuccessEventsReceived checks that the sink received the end of each execution.
func checkSuccessEventsReceived(res *Result, records []Record) {
	ended := map[string]bool{}
	for _, r := range records {
		if c := r.Change; c != nil && c.Action == "execution-succeeded" {
			ended[c.Subject] = true
		}
	}
	for _, r := range records {
		if e := r.Execution; e != nil && e.Outcome == "Succeeded" {
			res.Checked++
			if !ended["executions/"+e.Name] {
				res.fail("the sink received no execution-succeeded for execution %s", e.Name)
			}
		}
	}
}

// successfulWritesInOrder returns the successful writes of Shoots in the order of their ends.
func successfulWritesInOrder(records []Record) []*Write {
	var list []*Write
	for _, r := range records {
		if w := r.Write; w != nil && w.Status >= 200 && w.Status < 300 && w.ClusterID != "" {
			list = append(list, w)
		}
	}
	slices.SortStableFunc(list, func(a, b *Write) int { return a.End.Compare(b.End) })
	return list
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000") }
