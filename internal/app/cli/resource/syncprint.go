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

// NewSyncPrinter returns a printer in one of the formats. An unknown format means a table.
func NewSyncPrinter(w io.Writer, format string, o PrintOptions) Printer[v1.ClusterSync] {
	if format == terminal.FormatJSON || format == terminal.FormatYAML || format == terminal.FormatName {
		return itemPrinter[v1.ClusterSync]{NewPrinter(w, format, Kind{}, o), SyncItem}
	}
	return newTablePrinter(w, format, syncColumns(format == terminal.FormatWide), o)
}

// SyncItem returns the cluster of a sync with the fields that the sync knows. Its JSON is the sync.
func SyncItem(s v1.ClusterSync) (Item, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return Item{}, fmt.Errorf("write JSON: %w", err)
	}
	k := Kinds()[0]
	return Item{Raw: raw, Kind: k, Resource: v1.Resource{ID: s.ClusterID, Kind: k.Name, Name: s.Name}}, nil
}

func syncColumns(fullErrors bool) []column[v1.ClusterSync] {
	return []column[v1.ClusterSync]{
		{head: "NAME", cell: func(s *v1.ClusterSync, _ time.Time) string { return s.Name }},
		{head: "STATE", style: syncStyle, cell: func(s *v1.ClusterSync, _ time.Time) string { return string(s.State) }},
		{head: "SINCE", cell: func(s *v1.ClusterSync, now time.Time) string { return formatSince(now, s.UnsyncedSince) }},
		{head: "ATTEMPTS", cell: func(s *v1.ClusterSync, _ time.Time) string { return strconv.Itoa(s.Attempts) }},
		{head: "NEXT ATTEMPT", cell: formatNextTry},
		{head: "LAST ATTEMPT", wide: true, cell: func(s *v1.ClusterSync, now time.Time) string { return formatSince(now, s.LastAttempt) }},
		{head: "PENDING", wide: true, cell: func(s *v1.ClusterSync, _ time.Time) string { return formatPendingAction(s) }},
		{head: "WORKER", wide: true, cell: func(s *v1.ClusterSync, _ time.Time) string { return s.ClaimedBy }},
		{head: "SHOOT", cell: func(s *v1.ClusterSync, _ time.Time) string { return s.ShootName }},
		{head: "SHOOT STATUS", cell: func(s *v1.ClusterSync, _ time.Time) string { return string(s.ShootStatus) }},
		{head: "ID", wide: true, cell: func(s *v1.ClusterSync, _ time.Time) string { return s.ClusterID }},
		{head: "ERROR CLASS", wide: true, cell: func(s *v1.ClusterSync, _ time.Time) string { return s.ErrorClass }},
		{head: "ERROR", cell: func(s *v1.ClusterSync, _ time.Time) string {
			if fullErrors {
				return formatPauseWaitOrError(s)
			}
			return truncateText(formatPauseWaitOrError(s))
		}},
	}
}

func formatSince(now time.Time, t *time.Time) string {
	if t == nil {
		return "-"
	}
	return terminal.Since(now, *t)
}

// formatNextTry returns the time until a worker may begin. A running sync has no time limit, and the
// recovery of an unavailable Gardener cannot be predicted.
func formatNextTry(s *v1.ClusterSync, now time.Time) string {
	switch {
	case s.NextAttempt == nil || s.State == v1.SyncRunning || s.Waiting != nil:
		return "-"
	case !s.NextAttempt.After(now):
		return "now"
	}
	return terminal.Age(s.NextAttempt.Sub(now))
}

func formatPendingAction(s *v1.ClusterSync) string {
	switch {
	case s.Synced != nil:
		return "-"
	case s.Deleting:
		return "delete"
	}
	return "apply"
}

// formatPauseWaitOrError returns the pause, or why a cluster waits, or else the last error of the sync. Without either it
// returns the error that Gardener reports.
func formatPauseWaitOrError(s *v1.ClusterSync) string {
	text := s.Error
	if s.Pause != nil {
		text = "paused " + formatPause(s.Pause, func(t time.Time) string { return t.UTC().Format(time.RFC3339) })
	} else if s.Waiting != nil {
		text = formatWait(s.Waiting)
	}
	if text == "" && s.ShootStatus == v1.ShootError {
		text = s.ShootStatusMessage
	}
	return strings.Join(strings.Fields(text), " ") // a row is one line
}

// formatPause returns the author of a pause, its beginning, its end and its reason.
func formatPause(p *v1.SyncPause, since func(time.Time) string) string {
	var text strings.Builder
	if p.By != "" {
		text.WriteString("by " + p.By + " ")
	}
	text.WriteString("since " + since(p.Since))
	if p.Until != nil {
		text.WriteString(" until " + p.Until.UTC().Format(time.RFC3339))
	}
	if p.Reason != "" {
		text.WriteString(": " + p.Reason)
	}
	return text.String()
}

// formatWait returns the cause of a wait, its start and its reason.
func formatWait(w *v1.SyncWait) string {
	return fmt.Sprintf("waiting for %s since %s: %s", w.For, w.Since.UTC().Format(time.RFC3339), w.Reason)
}

// truncateText shortens a text to the width of a table cell.
func truncateText(text string) string {
	const most = 60
	runes := []rune(terminal.ReplaceUnprintable(text))
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most-1]) + "…"
}

func syncStyle(s *v1.ClusterSync) terminal.Style {
	switch s.State {
	case v1.SyncSynced:
		return terminal.Good
	case v1.SyncStuck:
		return terminal.Bad
	case v1.SyncRunning, v1.SyncBackingOff:
		return terminal.Busy
	case v1.SyncPending, v1.SyncPaused:
		return terminal.Faint
	}
	return terminal.Plain // a state of a newer server
}

// writeSync writes the state of the sync to Gardener.
func (d *descriptionWriter) writeSync(s *v1.ClusterSync) {
	if s == nil {
		return
	}
	state := string(s.State)
	if s.State != v1.SyncSynced && s.Deleting {
		state += ", deletion pending"
	}
	d.writeLine("Gardener:")
	d.writeSyncField("State", state)
	if s.Synced != nil {
		d.writeSyncField("Synced", d.formatTime(*s.Synced, ""))
	}
	if s.UnsyncedSince != nil {
		d.writeSyncField("Unsynced", "since "+d.formatTime(*s.UnsyncedSince, ""))
	}
	switch {
	case s.Pause != nil:
		d.writeSyncField("Paused", formatPause(s.Pause, func(t time.Time) string { return d.formatTime(t, "") }))
	case s.PausedAt != nil: // of an older server
		d.writeSyncField("Paused", "since "+d.formatTime(*s.PausedAt, ""))
	}
	if s.Waiting != nil {
		d.writeSyncField("Waiting", strings.TrimPrefix(formatWait(s.Waiting), "waiting "))
	}
	d.writeSyncField("Worker", s.ClaimedBy)
	d.writeSyncField("Shoot", s.ShootName)
	d.writeSyncField("Shoot status", string(s.ShootStatus))
	d.writeSyncField("Message", s.ShootStatusMessage)
	if s.Attempts > 0 {
		d.writeSyncField("Failed attempts", strconv.Itoa(s.Attempts))
	}
	if s.Error != "" && s.ErrorClass != "" {
		d.writeSyncField("Error", s.ErrorClass+": "+s.Error)
	} else {
		d.writeSyncField("Error", s.Error)
	}
	switch next := formatNextTry(s, d.now); next {
	case "-":
		// No attempt is planned.
	case "now":
		d.writeSyncField("Next attempt", next)
	default:
		d.writeSyncField("Next attempt", "in "+next)
	}
}

// writeSyncField writes the lines of a value below its name. A value without lines has no name either.
func (d *descriptionWriter) writeSyncField(name, text string) {
	name += ":"
	for line := range strings.Lines(text) {
		d.writeLine("  %-14s%s", name, terminal.ReplaceUnprintable(strings.TrimRight(line, "\r\n")))
		name = ""
	}
}
