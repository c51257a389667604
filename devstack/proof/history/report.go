package history

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// maxShown is the number of violations of one promise that a report shows.
const maxShown = 10

// WriteReport writes the tables of a summary, and the violations.
func WriteReport(out io.Writer, s Summary, results []Result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "PROMISE\tCHECKED\tVIOLATIONS\tFAULTS") // Flush returns the error
	for _, r := range results {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", r.Promise, r.Checked, len(r.Violations), s.CountFaults())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "\nfaults: %s\n", formatFaultCounts(s.Faults))
	_, _ = fmt.Fprintf(out, "silences of the host's API server, by a fault or an overload: %d\n\n", s.Silences)
	_, _ = fmt.Fprintln(table, "LATENCY\tCOUNT\tOK\tFAILED\tUNKNOWN\tP50\tP99\tMAX")
	for _, l := range s.Latencies {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", l.Name, l.Count, l.OK, l.Failed, l.Unknown, l.P50, l.P99, l.Max)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out)
	for _, e := range PromisesCheckedElsewhere() {
		_, _ = fmt.Fprintln(out, e)
	}
	for _, r := range results {
		for i, v := range r.Violations {
			if i == maxShown {
				_, _ = fmt.Fprintf(out, "%s: and %d more\n", strings.TrimSpace(r.Promise), len(r.Violations)-maxShown)
				break
			}
			if _, err := fmt.Fprintf(out, "%s: %s\n", strings.TrimSpace(r.Promise), v); err != nil {
				return err
			}
		}
	}
	return nil
}

func formatFaultCounts(counts map[string]int) string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	return strings.Join(kinds, ", ")
}

// A latency is the latencies of one operation.
type latency struct {
	name     string
	took     []time.Duration
	outcomes map[string]int
}

// computeLatenciesByOperation returns the latencies of requests from their intended start, and the time from the
// acknowledgement of a generation to the first event or report that covers it.
func computeLatenciesByOperation(records []Record) []*latency {
	byName := map[string]*latency{}
	var list []*latency
	for _, name := range []string{Create, Edit, Delete, CreatePool, EditPool, DeletePool, Trespass, "wake-up"} {
		byName[name] = &latency{name: name, outcomes: map[string]int{}}
		list = append(list, byName[name])
	}
	restore := findRestore(records)
	announced := listAnnouncements(records)
	for _, r := range records {
		q := r.Request
		if q == nil {
			continue
		}
		operation := byName[q.Op]
		operation.took = append(operation.took, q.End.Sub(q.Intended))
		operation.outcomes[q.Outcome]++
		if !q.acknowledged() || restore.hasLost(q) {
			continue
		}
		list := announced[q.resource()]
		if restore.hasNew(q) {
			list = slices.DeleteFunc(slices.Clone(list), func(a announcement) bool { return !restore.isAfter(a.at) })
		}
		if first := findFirstAnnouncement(list, q.Generation); !first.IsZero() {
			wakeUp := byName["wake-up"]
			wakeUp.took = append(wakeUp.took, max(0, first.Sub(q.End)))
			wakeUp.outcomes[OK]++
		}
	}
	return list
}

// An announcement is an event or a report about a generation.
type announcement struct {
	at         time.Time
	generation int64
}

// listAnnouncements returns the announcements of each cluster and node pool.
func listAnnouncements(records []Record) map[string][]announcement {
	announced := map[string][]announcement{}
	for _, r := range records {
		if e := r.Event; e != nil {
			announced[e.ClusterID] = append(announced[e.ClusterID], announcement{r.At, e.Generation})
		}
		if p := r.Report; p != nil {
			announced[p.ClusterID] = append(announced[p.ClusterID], announcement{r.At, p.Generation})
		}
	}
	return announced
}

// findFirstAnnouncement returns the time of the first announcement of a generation or a later one, zero without one.
func findFirstAnnouncement(list []announcement, generation int64) (first time.Time) {
	for _, a := range list {
		if a.generation >= generation && (first.IsZero() || a.at.Before(first)) {
			first = a.at
		}
	}
	return first
}

// Quantile returns a quantile of sorted durations, by the nearest rank.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
