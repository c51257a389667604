package sentinelapp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
)

func (c *command) newPlanCommand() *cobra.Command {
	var out format
	var limit uint16
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show which events the sentinel would publish now for the live fleet (dry run)",
		Long: `Read the live collection once and show how many resources the configuration
watches, which of them are due now and why, the expected rate of events, and the
data of one event. Also list the message_data fields that are empty, or that
send a number or boolean as a string. Nothing is published.`,
		Example: "  sentinel plan --config ./sentinel-config.yaml\n  sentinel plan --config ./sentinel-config.yaml -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.validateFormat(); err != nil {
				return err
			}
			watch, closeConns, err := c.newInspectWatch(cmd)
			if err != nil {
				return err
			}
			defer closeConns()
			progress := newProgressIfTerminal(c.stderr)
			report, err := inspect.Plan(cmd.Context(), watch, int(limit), func(read int) {
				progress.printProgressIfDue(watch.Collection, read)
			})
			progress.clearLine()
			if err != nil {
				return fmt.Errorf("read the fleet: %w", addSettingHintToAPIError(err))
			}
			return out.writeReport(c.stdout, report, func(p *page) { writePlanReport(p, report) })
		},
	}
	out.addOutputFlag(cmd)
	cmd.Flags().Uint16Var(&limit, "limit", 10, "maximum `number` of due resources to list")
	return cmd
}

func writePlanReport(p *page, r *inspect.PlanReport) {
	about := "about"
	if r.Events.AtMost {
		about = "at most"
	}
	p.writeLinef("%d of %s are due now; after that, %s %s events per minute.",
		r.Due, formatCount(r.Matching, "watched resource", "watched resources"), about, formatRate(r.Events.PerMinute))
	p.writeLinef("")
	p.writeTable("", nil, [][]string{
		{"watched", fmt.Sprintf("%d of %d %s at %s", r.Matching, r.OnServer, r.Collection, r.Endpoint)},
		{"selector", formatSelector(r.Selector)},
		{"profile", fmt.Sprintf("%s, not ready %s, ready %s", r.Profile, formatSeconds(r.MaxAgeNotReadySeconds), formatSeconds(r.MaxAgeReadySeconds))},
		{"read", formatSpan(r.Began, r.Ended)},
	})
	title := fmt.Sprintf("DUE NOW (%d)", r.Due)
	if len(r.MostUrgent) < r.Due {
		title = fmt.Sprintf("DUE NOW (%d most urgent of %d)", len(r.MostUrgent), r.Due)
	}
	var rows [][]string
	for _, d := range r.MostUrgent {
		overdue := formatSeconds(d.OverdueSeconds)
		if d.Since.IsZero() {
			overdue = "unknown"
		}
		rows = append(rows, []string{d.ID, d.Name, d.Phase, fmt.Sprintf("%d/%d", d.ObservedGeneration, d.Generation), formatRelativeTime(r.Ended, d.Since), overdue, d.Reason})
	}
	p.writeTable(title, []string{"ID", "NAME", "PHASE", "OBSERVED", "AGE FROM", "OVERDUE", "REASON"}, rows)
	p.writeTable("DECISIONS", nil, buildCountRows(r.Reasons))
	p.writeTable("PHASES", nil, buildCountRows(r.Phases))
	writeEventRates(p, r)
	rows = nil
	for _, f := range r.EmptyFields {
		rows = append(rows, []string{f.Key, fmt.Sprint(f.Resources), f.Example, f.Reason})
	}
	p.writeTable(
		fmt.Sprintf("EMPTY FIELDS (%s checked)", formatCount(r.PayloadsChecked, "payload", "payloads")),
		[]string{"FIELD", "RESOURCES", "EXAMPLE", "REASON"},
		rows,
	)
	rows = nil
	for _, f := range r.TextFields {
		rows = append(rows, []string{f.Key, f.Type, f.Instead, fmt.Sprint(f.Resources), f.Example})
	}
	p.writeTable("SENT AS STRING (SUGGESTION keeps the type)", []string{"FIELD", "TYPE", "SUGGESTION", "RESOURCES", "EXAMPLE"}, rows)
	writePayloadExample(p, r.Payload)
	rows = nil
	for _, w := range r.Warnings {
		rows = append(rows, []string{w.Warning, fmt.Sprint(w.Resources), w.Example})
	}
	p.writeTable("WARNINGS", []string{"WARNING", "RESOURCES", "EXAMPLE"}, rows)
	if r.Due > 0 {
		p.writeLinef("")
		p.writeLinef("A running sentinel does not repeat events that it published recently: see sentinel why ID.")
	}
}

// writePayloadExample writes the data of one event as JSON.
func writePayloadExample(p *page, example *inspect.PayloadExample) {
	if example == nil {
		return
	}
	p.writeLinef("")
	p.writeLinef("EVENT DATA OF %s", example.ID)
	var data bytes.Buffer
	if err := json.Indent(&data, example.Data, "  ", "  "); err != nil {
		data = *bytes.NewBuffer(example.Data) // shown as sent
	}
	for line := range strings.Lines("  " + data.String()) {
		p.writeLinef("%s", strings.TrimSuffix(line, "\n"))
	}
}

func writeEventRates(p *page, r *inspect.PlanReport) {
	rate := func(part inspect.RatePart, every float64) string {
		return fmt.Sprintf("%s, each every %s", formatCount(part.Resources, "resource", "resources"), formatSeconds(every))
	}
	rows := [][]string{
		{"not ready", formatRate(r.Events.NotReady.PerMinute), rate(r.Events.NotReady, r.MaxAgeNotReadySeconds)},
		{"ready", formatRate(r.Events.Ready.PerMinute), rate(r.Events.Ready, r.MaxAgeReadySeconds)},
		{"if none were ready", formatRate(r.Events.WorstPerMinute)},
	}
	if r.Events.LimitPerMinute > 0 {
		rows = append(rows, []string{"at most", formatRate(r.Events.LimitPerMinute), "publish.max_per_second"})
	}
	if r.Events.Once > 0 {
		rows = append(rows, []string{"now, one time", fmt.Sprint(r.Events.Once), "changed generations"})
	}
	p.writeTable("EVENTS PER MINUTE", nil, rows)
}

func buildCountRows(list []inspect.Count) [][]string {
	var rows [][]string
	for _, c := range list {
		rows = append(rows, []string{c.Name, fmt.Sprint(c.Count)})
	}
	return rows
}

// formatRate formats a rate with its significant digits.
func formatRate(rate float64) string {
	if rate >= 100 {
		return fmt.Sprintf("%.0f", rate)
	}
	return fmt.Sprintf("%.1f", rate)
}
