package allinone

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// FormatSummary returns a snapshot as a few closing lines. It has a table of kinds by phase, the
// published events, and the reports of each adapter.
func FormatSummary(s FleetSnapshot) string {
	shown := []v1.Phase{v1.PhaseReady}
	all := map[v1.Phase]int{}
	for _, g := range s.Groups {
		for p, n := range g.Phases {
			all[p] += n
		}
	}
	for _, p := range phasesInLifecycleOrder(all)[1:] {
		if all[p] > 0 {
			shown = append(shown, p)
		}
	}

	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	var head strings.Builder
	for _, p := range shown {
		head.WriteString("\t" + strings.ToUpper(terminal.ReplaceUnprintable(string(p))))
	}
	writeFormatted(w, "KIND\tTOTAL%s\n", head.String())
	for _, g := range s.Groups {
		writeFormatted(w, "%s\t%d", terminal.ReplaceUnprintable(g.Title), g.countResources())
		for _, p := range shown {
			writeFormatted(w, "\t%d", g.Phases[p])
		}
		writeFormatted(w, "\n")
	}
	_ = w.Flush() // a strings.Builder never fails

	writeFormatted(&b, "\n%d cloud events published in %s.\n", s.Published, terminal.Age(s.Now.Sub(s.Started)))
	if all := drawShoots(s); all != nil {
		for _, words := range all[0] {
			writeFormatted(&b, "%s", words.text)
		}
		writeFormatted(&b, ".\n")
	}
	if len(s.Changes) > 0 {
		writeFormatted(&b, "Latest changes:\n")
	}
	for _, c := range s.Changes[:min(len(s.Changes), sideRows)] {
		writeFormatted(&b, "  %s  %s\n", c.Time.Format(time.TimeOnly), terminal.ReplaceUnprintable(c.Summary))
	}
	for _, a := range s.Adapters {
		writeFormatted(&b, "Adapter %s sent %d reports", terminal.ReplaceUnprintable(a.Name), a.Reports)
		if a.Paused {
			writeFormatted(&b, " and is paused")
		}
		writeFormatted(&b, ".\n")
	}
	for _, u := range s.Unready[:min(len(s.Unready), sideRows)] {
		writeFormatted(&b, "%[2]s is not ready for %[1]s (%[3]s).\n", terminal.Since(s.Now, u.Since), terminal.ReplaceUnprintable(u.Resource), terminal.ReplaceUnprintable(string(u.Phase)))
	}
	if s.Notice != "" {
		writeFormatted(&b, "%s\n", terminal.ReplaceUnprintable(s.Notice))
	}
	return b.String()
}

// writeFormatted writes to a buffer in memory, which never fails.
func writeFormatted(w interface{ Write([]byte) (int, error) }, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
