package history

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A FoundBug is a bug of the product that a run found. A test keeps it from coming back.
type FoundBug struct {
	What string // from the view of a user
	Run  string // the arguments that found it
	Mend string // the commit
	Test string // folder of the package and name of the test
}

// FoundBugs returns the bugs that were found so far, oldest first.
func FoundBugs() []FoundBug {
	return []FoundBug{
		{
			What: "A worker was killed after Gardener had created a Shoot. Nobody was told of the creation.",
			Run:  "SEED=11", Mend: "5e9dc362", Test: "internal/clusterworker TestCreationWithoutRecordedResult",
		},
		{
			What: "A worker was killed after Gardener had stored an update. Nobody was told of the update.",
			Run:  "SEED=21 FAULTS=kill", Mend: "e9a93926", Test: "internal/clusterworker TestUpdateWithoutRecordedResult",
		},
		{
			What: "A leader that was frozen cordoned one node more than the budget allows, 28 ms after it was resumed.",
			Run:  "SEED=51", Mend: "71f93791", Test: "internal/kube TestLeaderFence",
		},
		{
			What: "A client noticed only after 30 s that its watch was dead.",
			Run:  "SEED=77 FAULTS=halfopen", Mend: "1b8ae280", Test: "client TestWatchBoundsSilence",
		},
		{
			What: "A change event waited two minutes, because its worker was stopped during a claim.",
			Run:  "-upgrade", Mend: "8fb99ff8", Test: "internal/clusterworker TestStopDuringAClaim",
		},
		{
			What: "After an outage of Gardener, the states of Shoots were five minutes old.",
			Run:  "SEED=11 FAULTS=host,garden", Mend: "74ef8d8d", Test: "internal/gardener TestAnswersAreToldApartByWhatTheySay",
		},
	}
}

// WritePage writes the page that publishes the runs.
func WritePage(out io.Writer, runs []Summary) error {
	runs = slices.SortedFunc(slices.Values(runs), func(a, b Summary) int { return a.Began.Compare(b.Began) })
	p := &page{}
	p.line("# Reliability\n")
	p.line("`make proof` runs the whole product with replicas of every part, under load and under faults, and checks a history of what was seen from outside. This page lists the published runs. [How to run it](../CONTRIBUTING.md).\n")
	p.line("## Promises\n")
	p.line("| Promise | Runs | Items checked | Faults injected | Violations |\n|---|---|---|---|---|")
	for _, s := range sumPromises(runs) {
		p.line("| %s | %d | %d | %d | %d |", s.Promise, s.runs, s.Checked, s.faults, s.Violations)
	}
	p.line("\n## Promises that no history shows\n")
	p.line("| Promise | Shown by |\n|---|---|")
	for _, e := range PromisesElsewhere() {
		p.line("| %s | %s |", e.Promise, cmp.Or(strings.Join(quoteAll(e.Tests), ", "), e.Command))
	}
	p.line("\n## Runs\n")
	p.line("| Date | Commit | Arguments | Broker | Faults | Wake-up p50, p99 |\n|---|---|---|---|---|---|")
	for _, r := range runs {
		p.line("| %s | `%.10s` | `SEED=%d CLUSTERS=%d MINUTES=%g` | %s | %s | %s |",
			r.Began.Format("2006-01-02"), r.Revision, r.Seed, r.Clusters, r.Minutes, r.Broker, cmp.Or(listFaults(r.Faults), "none"), r.formatLatency("wake-up"))
	}
	p.line("\n## Bugs found\n")
	p.line("| Bug | Run | Mended in | Test |\n|---|---|---|---|")
	for _, b := range FoundBugs() {
		p.line("| %s | `%s` | `%s` | `%s` |", b.What, b.Run, b.Mend, b.Test)
	}
	_, err := io.WriteString(out, p.String())
	return err
}

type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.Builder, format+"\n", args...) }

// A promiseSum is the sum of the results of one promise.
type promiseSum struct {
	PromiseSummary

	runs, faults int
}

// sumPromises returns the sums in the order of the report.
func sumPromises(runs []Summary) []*promiseSum {
	var sums []*promiseSum
	for _, r := range runs {
		for _, result := range r.Promises {
			i := slices.IndexFunc(sums, func(s *promiseSum) bool { return s.Promise == result.Promise })
			if i < 0 {
				i = len(sums)
				sums = append(sums, &promiseSum{PromiseSummary: PromiseSummary{Promise: result.Promise}})
			}
			s := sums[i]
			s.Checked, s.Violations = s.Checked+result.Checked, s.Violations+result.Violations
			s.runs, s.faults = s.runs+1, s.faults+r.CountFaults()
		}
	}
	return sums
}

func (s Summary) formatLatency(name string) string {
	for _, l := range s.Latencies {
		if l.Name == name {
			return fmt.Sprintf("%s, %s", l.P50, l.P99)
		}
	}
	return "–"
}

func quoteAll(texts []string) []string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = "`" + text + "`"
	}
	return quoted
}
