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

// StuckPrinter writes stuck resources as they arrive. Close writes the rest of the output.
type StuckPrinter interface {
	Write(items []v1.StuckResource) error
	Close() error
}

// NewStuckPrinter returns a printer in one of the formats. An unknown format means a table.
func NewStuckPrinter(w io.Writer, format string, o PrintOptions) StuckPrinter {
	if format == terminal.FormatJSON || format == terminal.FormatYAML || format == terminal.FormatName {
		return stuckItems{NewPrinter(w, format, Kind{}, o)}
	}
	p := &stuckTable{w: w, table: terminal.Table{Colour: o.Colour}, now: o.Now}
	if !o.NoHeaders {
		p.pending = [][]terminal.Cell{terminal.PlainRow("KIND", "NAME", "PHASE", "AGE", "CAUSE", "ATTEMPTS", "NEXT")}
	}
	return p
}

type stuckItems struct{ to Printer }

func (p stuckItems) Write(list []v1.StuckResource) error {
	items := make([]Item, len(list))
	for n, s := range list {
		raw, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		items[n] = Item{Raw: raw, Kind: stuckKind(s), Resource: v1.Resource{ID: s.ID, Kind: s.Kind, Name: s.Name}, Owner: s.ClusterName}
	}
	return p.to.Write(items)
}

func (p stuckItems) Close() error { return p.to.Close() }

func stuckKind(s v1.StuckResource) Kind {
	if k, err := ParseKind(s.Kind); err == nil {
		return k
	}
	return Kind{Name: s.Kind, Singular: strings.ToLower(s.Kind)} // a kind of a newer server
}

type stuckTable struct {
	w       io.Writer
	table   terminal.Table
	now     func() time.Time
	pending [][]terminal.Cell // the column headers, until the first row
}

func (p *stuckTable) Write(list []v1.StuckResource) error {
	if len(list) == 0 {
		return nil
	}
	rows := p.pending
	for _, s := range list {
		name, attempts, next := s.Name, "-", "-"
		if s.ClusterName != "" {
			name = s.ClusterName + "/" + s.Name
		}
		if s.Kind == v1.KindCluster && (s.NextAttempt != nil || s.Attempts > 0) {
			attempts = strconv.Itoa(s.Attempts)
		}
		if s.NextAttempt != nil {
			if next = "now"; s.NextAttempt.After(p.now()) {
				next = terminal.Age(s.NextAttempt.Sub(p.now()))
			}
		}
		row := terminal.PlainRow(stuckKind(s).Singular, name, string(s.Phase), terminal.Since(p.now(), s.Since), formatCause(s.Cause), attempts, next)
		row[2].Style = terminal.PhaseStyle(s.Phase)
		rows = append(rows, row)
	}
	p.pending = nil
	return p.table.WriteRows(p.w, rows)
}

func (p *stuckTable) Close() error { return nil }

// formatCause returns a cause in one line: what holds the resource up, then why.
func formatCause(c v1.StuckCause) string {
	what := strings.Join([]string{string(c.Type), c.Adapter, c.Code, c.Reason}, " ")
	return truncateText(strings.Join(strings.Fields(strings.TrimSpace(what)+": "+c.Message), " "))
}
