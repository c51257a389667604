package resource

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
)

// NewStuckPrinter returns a printer in one of the formats. An unknown format means a table.
func NewStuckPrinter(w io.Writer, format string, o PrintOptions) Printer[v1.StuckResource] {
	if format == terminal.FormatJSON || format == terminal.FormatYAML || format == terminal.FormatName {
		return itemPrinter[v1.StuckResource]{NewPrinter(w, format, Kind{}, o), stuckItem}
	}
	return newTablePrinter(w, format, stuckColumns(), o)
}

func stuckItem(s v1.StuckResource) (Item, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return Item{}, fmt.Errorf("write JSON: %w", err)
	}
	return Item{Raw: raw, Kind: stuckKind(s), Resource: v1.Resource{ID: s.ID, Kind: s.Kind, Name: s.Name}, Owner: s.ClusterName}, nil
}

func stuckKind(s v1.StuckResource) Kind {
	if k, err := ParseKind(s.Kind); err == nil {
		return k
	}
	return Kind{Name: s.Kind, Singular: strings.ToLower(s.Kind)} // a kind of a newer server
}

func stuckColumns() []column[v1.StuckResource] {
	return []column[v1.StuckResource]{
		{head: "KIND", cell: func(s *v1.StuckResource, _ time.Time) string { return stuckKind(*s).Singular }},
		{head: "NAME", cell: func(s *v1.StuckResource, _ time.Time) string {
			return strings.TrimPrefix(s.ClusterName+"/"+s.Name, "/")
		}},
		{
			head:  "PHASE",
			style: func(s *v1.StuckResource) terminal.Style { return terminal.PhaseStyle(s.Phase) },
			cell:  func(s *v1.StuckResource, _ time.Time) string { return string(s.Phase) },
		},
		{head: "AGE", cell: func(s *v1.StuckResource, now time.Time) string { return terminal.Since(now, s.Since) }},
		{head: "CAUSE", cell: func(s *v1.StuckResource, _ time.Time) string { return formatCause(s.Cause) }},
		{head: "ATTEMPTS", cell: func(s *v1.StuckResource, _ time.Time) string { return formatStuckAttempts(s) }},
		{head: "NEXT", cell: formatStuckNextAttempt},
	}
}

// formatStuckAttempts returns the number of attempts to sync a cluster. Other resources, and clusters without a
// sync, have none.
func formatStuckAttempts(s *v1.StuckResource) string {
	hasSync := s.NextAttempt != nil || s.Attempts > 0
	if s.Kind != v1.KindCluster || !hasSync {
		return "-"
	}
	return strconv.Itoa(s.Attempts)
}

func formatStuckNextAttempt(s *v1.StuckResource, now time.Time) string {
	switch {
	case s.NextAttempt == nil:
		return "-"
	case s.NextAttempt.After(now):
		return terminal.Age(s.NextAttempt.Sub(now))
	}
	return "now"
}

// formatCause returns a cause in one line: what holds the resource up, then why.
func formatCause(c v1.StuckCause) string {
	what := strings.Join([]string{string(c.Type), c.Adapter, c.Code, c.Reason}, " ")
	return truncateText(strings.Join(strings.Fields(strings.TrimSpace(what)+": "+c.Message), " "))
}
