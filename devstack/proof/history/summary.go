package history

import (
	"slices"
	"strings"
	"time"
)

// A Run says what was run.
type Run struct {
	Revision string    `json:"revision"` // of the source
	Began    time.Time `json:"began"`
	Seed     uint64    `json:"seed"`
	Clusters int       `json:"clusters"`
	Minutes  float64   `json:"minutes"`
	Broker   string    `json:"broker"`
	Bug      string    `json:"bug,omitempty"` // promise that a planted bug breaks; empty means none
}

// A Summary is a run and its figures, as they are published.
type Summary struct {
	Run

	Faults    map[string]int   `json:"faults"` // by kind
	Silences  int              `json:"silences,omitempty"`
	Promises  []PromiseSummary `json:"promises"`
	Latencies []LatencySummary `json:"latencies"`
}

// A PromiseSummary is the result of one checker.
type PromiseSummary struct {
	Promise    string `json:"promise"`
	Checked    int    `json:"checked"`
	Violations int    `json:"violations"`
}

// A LatencySummary has the latencies of one operation. Its quantiles are by the nearest rank.
type LatencySummary struct {
	Name    string        `json:"name"`
	Count   int           `json:"count"`
	OK      int           `json:"ok"`
	Failed  int           `json:"failed"`
	Unknown int           `json:"unknown"` // requests without an answer
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
	Max     time.Duration `json:"max"`
}

// Summarize returns the figures of a run.
func Summarize(run Run, results []Result, records []Record) Summary {
	s := Summary{Run: run, Faults: map[string]int{}}
	for _, r := range records {
		if r.Fault != nil {
			s.Faults[r.Fault.Kind]++
		}
		if r.Silence != nil {
			s.Silences++
		}
	}
	for _, r := range results {
		s.Promises = append(s.Promises, PromiseSummary{strings.TrimSpace(r.Promise), r.Checked, len(r.Violations)})
	}
	for _, l := range computeLatenciesByOperation(records) {
		slices.Sort(l.took)
		s.Latencies = append(s.Latencies, LatencySummary{
			Name: l.name, Count: len(l.took), OK: l.outcomes[OK], Failed: l.outcomes[Failed], Unknown: l.outcomes[Unknown],
			P50: round(Quantile(l.took, 0.5)), P99: round(Quantile(l.took, 0.99)), Max: round(Quantile(l.took, 1)),
		})
	}
	return s
}

// CountFaults returns the number of faults of all kinds.
func (s Summary) CountFaults() int {
	total := 0
	for _, n := range s.Faults {
		total += n
	}
	return total
}
