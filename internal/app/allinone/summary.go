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
	var b strings.Builder
	writePhaseTable(&b, s.Groups)
	writeFormatted(&b, "\n%d cloud events published in %s.\n", s.Published, terminal.Age(s.Now.Sub(s.Started)))
	if lines := drawShoots(s); lines != nil {
		for _, span := range lines[0] {
			writeFormatted(&b, "%s", span.text)
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
		name := terminal.ReplaceUnprintable(u.Resource)
		phase := terminal.ReplaceUnprintable(string(u.Phase))
		writeFormatted(&b, "%s is not ready for %s (%s).\n", name, terminal.Since(s.Now, u.Since), phase)
	}
	if s.Notice != "" {
		writeFormatted(&b, "%s\n", terminal.ReplaceUnprintable(s.Notice))
	}
	return b.String()
}

// writePhaseTable writes the number of resources by kind and phase. A phase without resources has no column, except
// Ready.
func writePhaseTable(b *strings.Builder, groups []ResourceGroup) {
	shown := []v1.Phase{v1.PhaseReady}
	all := map[v1.Phase]int{}
	for _, g := range groups {
		for p, n := range g.Phases {
			all[p] += n
		}
	}
	for _, p := range knownAndCountedPhasesInOrder(all)[1:] {
		if all[p] > 0 {
			shown = append(shown, p)
		}
	}

	w := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	var head strings.Builder
	for _, p := range shown {
		head.WriteString("\t" + strings.ToUpper(terminal.ReplaceUnprintable(string(p))))
	}
	writeFormatted(w, "KIND\tTOTAL%s\n", head.String())
	for _, g := range groups {
		writeFormatted(w, "%s\t%d", terminal.ReplaceUnprintable(g.Title), g.countResources())
		for _, p := range shown {
			writeFormatted(w, "\t%d", g.Phases[p])
		}
		writeFormatted(w, "\n")
	}
	_ = w.Flush() // a strings.Builder never fails
}

// writeFormatted writes to a buffer in memory, which never fails.
func writeFormatted(w interface{ Write([]byte) (int, error) }, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
