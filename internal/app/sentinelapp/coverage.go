package sentinelapp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
)

func (c *command) newCheckCoverageCommand() *cobra.Command {
	var out format
	collections := inspect.AllCollections()
	cmd := &cobra.Command{
		Use:   "coverage FILE...",
		Short: "Check that exactly one configuration watches each live resource",
		Long: `Read the live fleet and check that exactly one of the configurations selects
each resource, including those that are being deleted. Otherwise list the
resources that none or more than one of them selects, grouped by labels.

The exit code is 0 if the fleet is covered, 1 if there are gaps or overlaps, and
2 if the check failed. Configurations with equal endpoints share a fleet.`,
		Example: "  sentinel coverage ./us-east.yaml ./us-west.yaml ./eu.yaml\n  sentinel coverage sentinels/*.yaml -o json",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, files []string) error {
			report, err := c.checkFleetCoverage(cmd, files, collections, &out)
			if err != nil {
				return &exitError{err, codeTrouble}
			}
			if err := out.writeReport(c.stdout, report, func(p *page) { writeCoverageReport(p, report) }); err != nil {
				return &exitError{err, codeTrouble}
			}
			if !report.Proven {
				return &exitError{errors.New(formatCoverageVerdict(report)), codeFailed}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{err, codeTrouble} })
	out.addOutputFlag(cmd)
	cmd.Flags().StringSliceVar(&collections, "collections", collections, "collections to check")
	return cmd
}

func (c *command) checkFleetCoverage(cmd *cobra.Command, configFiles, collections []string, out *format) (*inspect.CoverageReport, error) {
	if err := out.validateFormat(); err != nil {
		return nil, err
	}
	if len(configFiles) == 0 {
		return nil, errors.New("no configuration files given: pass all files that cover the fleet together")
	}
	if c.file != "" {
		return nil, errors.New("--config is not supported: pass the configuration files as arguments")
	}
	var watches []*inspect.Watch
	for _, file := range configFiles {
		if slices.ContainsFunc(watches, func(w *inspect.Watch) bool { return w.Name == file }) {
			return nil, fmt.Errorf("the file %q is given twice", file)
		}
		// Each file has its own settings.
		commandOfFile := &command{cfg: OverriddenDefaults(), file: file, stdout: c.stdout, stderr: c.stderr, env: c.env}
		watch, closeConns, err := commandOfFile.newInspectWatch(cmd)
		if err != nil {
			return nil, err
		}
		defer closeConns()
		if !slices.Contains(collections, watch.Collection) {
			return nil, fmt.Errorf("%s watches %s, which is not in --collections", file, watch.Collection)
		}
		watches = append(watches, watch)
	}
	progress := newProgressIfTerminal(c.stderr)
	defer progress.clearLine()
	report, err := inspect.CheckCoverage(cmd.Context(), watches, collections, progress.printProgressIfDue)
	return report, addSettingHintToAPIError(err)
}

// formatCoverageVerdict returns the result in one line.
func formatCoverageVerdict(r *inspect.CoverageReport) string {
	resources, unwatched, overlapping, unreadable := 0, 0, 0, 0
	for _, c := range r.Collections {
		resources += c.Resources
		unwatched += c.Unwatched
		overlapping += c.Overlapping
		unreadable += c.Unreadable
	}
	if r.Proven && resources == 0 {
		return "covered, but no resource was found; check that the token can read the fleet"
	}
	if r.Proven {
		return fmt.Sprintf("covered: each of %s is watched by exactly one of %s",
			formatCount(resources, "resource", "resources"), formatCount(len(r.Configs), "configuration", "configurations"))
	}
	text := fmt.Sprintf("not covered: %s, %d not watched, %d watched more than once",
		formatCount(resources, "resource", "resources"), unwatched, overlapping)
	if unreadable > 0 {
		text += fmt.Sprintf(", %d invalid", unreadable)
	}
	return text
}

func writeCoverageReport(p *page, r *inspect.CoverageReport) {
	p.writeLinef("%s.", formatCoverageVerdict(r))
	var rows [][]string
	for _, c := range r.Configs {
		rows = append(rows, []string{c.Name, c.Collection, fmt.Sprint(c.Selected), fmt.Sprint(c.Alone), formatSelector(c.Selector)})
	}
	p.writeTable("CONFIGURATIONS", []string{"FILE", "COLLECTION", "SELECTED", "EXCLUSIVE", "SELECTOR"}, rows)
	rows = nil
	for _, c := range r.Collections {
		if !c.Served {
			rows = append(rows, []string{c.Collection, "0", "0", "0", c.Endpoint, "not available"})
			continue
		}
		rows = append(rows, []string{
			c.Collection, fmt.Sprint(c.Resources), fmt.Sprint(c.Unwatched), fmt.Sprint(c.Overlapping), c.Endpoint, formatAsOf(c),
		})
	}
	p.writeTable("COLLECTIONS", []string{"COLLECTION", "RESOURCES", "UNWATCHED", "OVERLAPPING", "ENDPOINT", "AS OF"}, rows)
	for _, c := range r.Collections {
		if c.Unwatched > 0 {
			title := fmt.Sprintf("NOT WATCHED: %s at %s", c.Collection, c.Endpoint)
			p.writeTable(title, []string{"LABELS", "RESOURCES", "EXAMPLE"}, buildGroupRows(c.Gaps, false))
		}
		if c.Overlapping > 0 {
			title := fmt.Sprintf("WATCHED MORE THAN ONCE: %s at %s", c.Collection, c.Endpoint)
			p.writeTable(title, []string{"LABELS", "RESOURCES", "EXAMPLE", "CONFIGURATIONS"}, buildGroupRows(c.Overlaps, true))
		}
	}
	p.writeLinef("")
	p.writeLinef("SELECTED, EXCLUSIVE and RESOURCES were counted while the fleet was read.")
	for _, c := range r.Collections {
		if c.WalkOnly != "" {
			p.writeLinef("%s: changes during the read may be missing, because %s.", c.Collection, c.WalkOnly)
		}
	}
}

// formatAsOf returns the time for which a finding is valid.
func formatAsOf(c inspect.CoveredCollection) string {
	if c.At.IsZero() {
		return formatSpan(c.Began, c.Ended)
	}
	return c.At.Format("2006-01-02 15:04:05Z")
}

func buildGroupRows(groups []inspect.Group, withConfigs bool) [][]string {
	var rows [][]string
	for _, g := range groups {
		var labels []string
		for _, l := range g.Labels {
			if l.Value == nil {
				labels = append(labels, l.Label+" missing")
			} else {
				labels = append(labels, l.Label+"="+*l.Value)
			}
		}
		text := strings.Join(labels, ", ")
		switch {
		case g.Others:
			text = "others"
		case text == "":
			text = "any labels"
		}
		row := []string{text, fmt.Sprint(g.Resources), g.Example}
		if withConfigs && g.Others {
			row = append(row, "several")
		} else if withConfigs {
			row = append(row, strings.Join(g.Configs, ", "))
		}
		rows = append(rows, row)
	}
	return rows
}
