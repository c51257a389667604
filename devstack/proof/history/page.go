package history

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A FoundBug is a bug of the product that a run showed.
type FoundBug struct {
	Seed uint64
	What string
	Fix  string // what was changed, and the test that keeps it
}

// FoundBugs returns the bugs that runs showed, the newest first.
func FoundBugs() []FoundBug {
	return []FoundBug{
		{
			11, "Node pools stayed in provisioning or deletion for ten minutes after a change of leader. " +
				"The new leader had reported a ready cluster before it saw its Shoot.",
			"Such a report is repeated after 30 seconds: `TestReportOfAnUnseenShoot` in `internal/clusterworker`.",
		},
		{
			60, "A failover after a restore and an edit hid lost changes. The Shoot was replaced without a permission.",
			"A claim stores the generation that it sends in its history: `TestHistories` in `internal/shoot`.",
		},
		{
			60, "A connection to the fleet API was dead without being closed. All requests of a client waited on it for two minutes.",
			"HTTP/2 connections are checked with pings: `TestDeadConnection` in `client`.",
		},
		{
			11, "A frozen node-fault-controller went on and stored an old report after the recovery. The node stayed quarantined.",
			"Health events are ordered by their time: `TestLateReport` in `internal/nodefault/intake`.",
		},
		{
			11, "A sentinel whose clock was set ahead announced a cluster again after each report.",
			"The wait is measured without the wall clock: `TestRepeatsAfterTheClockIsSet` in `internal/sentinel/decision`.",
		},
		{
			11, "The results of a creation and of the deletion were lost. The sink received no change event about either.",
			"A Shoot without a recorded success is recorded before its deletion: `TestDeletedAfterALostCreation` in `internal/clusterworker`.",
		},
		{
			20, "A worker created a Shoot and was killed, and the cluster was deleted before another worker recorded a success. " +
				"The sink received `shoot-deleted`, but never `shoot-created`.",
			"The creation is reported at the deletion: `TestDeletedAfterALostCreation` in `internal/clusterworker`.",
		},
		{
			20, "A worker created a Shoot and was killed, and the poller recorded the Shoot. No change event reported the creation.",
			"The first recorded success reports it: `TestFirstSuccessReportsTheCreation` in `internal/clusterworker`.",
		},
		{
			11, "After a restart of the API server, clusters waited a minute or more. A server that has just started refuses known callers, " +
				"and the cluster-worker took that for a missing permission.",
			"A refusal is final only if the server is ready: `TestRefusalsOfAStartingServer` in `internal/gardener`.",
		},
		{
			6, "The states of Shoots came five minutes after an outage of Gardener's API server. " +
				"A server that has just started refuses `system:anonymous`, and the worker took that for a missing right.",
			"It counts as unavailable: `TestAnswersAreToldApartByWhatTheySay` in `internal/gardener`.",
		},
		{
			77, "A client noticed a dead watch only after 30 seconds.",
			"The fleet API sends a bookmark every 4 seconds, and clients reconnect after 12: `TestWatch` in `client`.",
		},
	}
}

// ReadSummaries reads the summaries of a folder, the newest first.
func ReadSummaries(dir string) ([]Summary, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var list []Summary
	for _, path := range paths {
		text, err := os.ReadFile(path) //nolint:gosec // our own results
		if err != nil {
			return nil, err
		}
		var s Summary
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Summary) int { return b.Began.Compare(a.Began) })
	return list, nil
}

// checkerDescriptions returns what each checker compares, by the number of its promise.
func checkerDescriptions() map[string]string {
	return map[string]string{
		"R1":  "Each acknowledged generation of a resource is followed by an event or a report.",
		"R2":  "One decision about one generation has one event id, also when it is sent again.",
		"R3":  "After an outage, sentinels and workers keep their configured rates.",
		"R4":  "A sink receives a change event about each change of a Shoot or a later one.",
		"R5":  "In the end API and Shoots agree, and nothing deleted remains.",
		"R6":  "No cluster has two Shoots, and no Shoot returns to an older generation.",
		"R7":  "Nothing is executed without the approvals of its policy, and what was approved is executed.",
		"R8":  "One attempt of an execution has one Job.",
		"R9":  "An approved rollback restores the state from before the execution.",
		"R10": "Nodes out of service stay within the budget, and all return in the end.",
		"R11": "After SIGTERM, processes end in time with status 0.",
		"R12": "Memory stays within the limits of the chart. Goroutines and open files stay below twice those of the first minute, plus 100.",
		"R13": "Times of events and conditions fit the recorder's clock.",
		"R14": "Releases roll forward, back and forward without a failed request.",
		"R17": "In the end each resource is watched by one sentinel.",
		"R19": "No tenant reads or changes a resource of another one.",
		"R20": "Shoots newer than a restored backup are reported first, and replaced only with permission.",

		"no valid token is refused": "Requests with a valid token never get 401, also while tokens are replaced.",
		"no unexpected exits":       "Processes run until a fault stops them. A controller without its lease may exit.",
	}
}

// promiseTotal is the sum of a promise over runs.
type promiseTotal struct {
	promise                           string
	runs, faults, checked, violations int
}

func sumPromises(runs []Summary) []promiseTotal {
	byName := map[string]*promiseTotal{}
	for _, r := range RunAllCheckers(Config{Upgrade: true, Restore: true}, nil) {
		byName[r.Promise] = &promiseTotal{promise: r.Promise}
	}
	for _, s := range runs {
		for _, p := range s.Promises {
			t := byName[p.Promise]
			if t == nil { // of an older release
				continue
			}
			t.checked += p.Checked
			t.violations += p.Violations
			if p.Checked > 0 {
				t.runs++
				t.faults += s.CountFaults()
			}
		}
	}
	var list []promiseTotal
	for _, t := range byName {
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b promiseTotal) int {
		return cmp.Or(cmp.Compare(promiseNumber(a.promise), promiseNumber(b.promise)), cmp.Compare(a.promise, b.promise))
	})
	return list
}

// promiseNumber returns 12 for "R12 bounded resources", and more than all numbers for a promise without one.
func promiseNumber(promise string) int {
	var n int
	if _, err := fmt.Sscanf(promise, "R%d", &n); err != nil {
		return math.MaxInt
	}
	return n
}

// splitPromise returns "R12" and "bounded resources". A promise without a number is all name.
func splitPromise(promise string) (number, name string) {
	if promiseNumber(promise) == math.MaxInt {
		return "", promise
	}
	number, name, _ = strings.Cut(promise, " ")
	return number, name
}

// describeChecker returns what the checker of a promise compares.
func describeChecker(promise string) string {
	number, name := splitPromise(promise)
	return checkerDescriptions()[cmp.Or(number, name)]
}

// WriteMarkdownPage writes the published page: promises, runs, planted bugs and found bugs. planted are the runs
// with a planted bug.
func WriteMarkdownPage(out io.Writer, runs, planted []Summary) error {
	var b strings.Builder
	b.WriteString(
		"# Reliability\n\n<!-- generated by go test ./devstack/proof/history -update; edit devstack/proof/history/page.go -->\n\n" +
			"`make proof` runs the product as in production, but for the console: a PostgreSQL primary with a standby, three brokers, and several replicas of each component. " +
			"It sends a seeded workload and injects faults. Checkers then read a history of what was seen from outside. " +
			"[Run it yourself](../CONTRIBUTING.md#prove-the-promises).\n\n## Promises\n\n" +
			"Only runs without violations are published; [bugs](#bugs-found) are fixed first. Faults counts those of the runs in which the checker had something to check.\n\n" +
			"| promise | what the checker compares | runs | faults | checks | violations |\n|---|---|---|---|---|---|\n",
	)
	for _, t := range sumPromises(runs) {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d |\n", t.promise, describeChecker(t.promise), t.runs, t.faults, t.checked, t.violations)
	}
	b.WriteString("\nNo history shows these promises. Tests of packages keep them:\n\n")
	for _, e := range PromisesCheckedElsewhere() {
		fmt.Fprintf(&b, "- %s: %s.%s\n", e.Promise, e.Command, listTests(e.Tests))
	}
	b.WriteString(
		"\n## Runs\n\nThe latency is the time from the acknowledgement of a change to the first event or report that covers it.\n\n" +
			"| began | revision | seed | clusters | minutes | broker | faults | latency p50 | p99 | violations |\n|---|---|---|---|---|---|---|---|---|---|\n",
	)
	for _, s := range runs {
		fmt.Fprintf(&b, "| %s | %.12s | %d | %d | %g | %s | %s | %s | %d |\n", s.Began.Format("2006-01-02 15:04"), s.Revision, s.Seed, s.Clusters, s.Minutes,
			s.Broker, cmp.Or(formatFaultCounts(s.Faults), "none"), s.formatWakeUp(), s.countViolations())
	}
	b.WriteString(
		"\n## Planted bugs\n\nA checker is worth as much as what it finds. Each of these promises was broken by a planted bug in a run, and its checker found that:\n\n",
	)
	slices.SortFunc(planted, func(x, y Summary) int { return cmp.Compare(promiseNumber(x.Bug), promiseNumber(y.Bug)) })
	for _, s := range planted {
		for _, p := range s.Promises {
			if number, _ := splitPromise(p.Promise); number == s.Bug {
				fmt.Fprintf(&b, "- %s: %d violations\n", s.Bug, p.Violations)
			}
		}
	}
	b.WriteString("\n## Bugs found\n\n| seed | bug | fix |\n|---|---|---|\n")
	for _, f := range FoundBugs() {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", f.Seed, f.What, f.Fix)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// listTests groups the tests of packages by their folders.
func listTests(tests []string) string {
	if len(tests) == 0 {
		return ""
	}
	byFolder := map[string][]string{}
	for _, test := range tests {
		folder, name, _ := strings.Cut(test, " ")
		byFolder[folder] = append(byFolder[folder], "`"+name+"`")
	}
	var parts []string
	for _, folder := range slices.Sorted(maps.Keys(byFolder)) {
		parts = append(parts, strings.Join(byFolder[folder], ", ")+" in `"+folder+"`")
	}
	return " " + strings.Join(parts, "; ") + "."
}

func (s Summary) countViolations() int {
	total := 0
	for _, p := range s.Promises {
		total += p.Violations
	}
	return total
}

// formatWakeUp returns two cells with the latency from a change to its event.
func (s Summary) formatWakeUp() string {
	for _, l := range s.Latencies {
		if l.Name == "wake-up" {
			return l.P50.Round(time.Millisecond).String() + " | " + l.P99.Round(time.Millisecond).String()
		}
	}
	return "– | –"
}
