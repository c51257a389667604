package sentinelapp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/sentinel/survey"
)

func (c *command) coverageCommand() *cobra.Command {
	var out format
	collections := survey.Collections()
	cmd := &cobra.Command{
		Use:   "coverage FILE...",
		Short: "Prove that each live resource is watched by exactly one of several configurations",
		Long: `Read the live fleet and prove that each resource, one that is being deleted as
well, is selected by exactly one of the configurations; or list by labels what
nobody watches and what several do.

It ends with 0 if that is proven, with 1 if there are gaps or overlaps, and with
2 if it could not be told. Endpoints are compared as they are written.`,
		Example: "  sentinel coverage ./us-east.yaml ./us-west.yaml ./eu.yaml\n  sentinel coverage sentinels/*.yaml -o json",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, files []string) error {
			report, err := c.cover(cmd, files, collections, &out)
			if err != nil {
				return &coded{err, codeTrouble}
			}
			if err := out.write(c.stdout, report, func(p *page) { writeCoverage(p, report) }); err != nil {
				return &coded{err, codeTrouble}
			}
			if !report.Proven {
				return &coded{errors.New(verdict(report)), codeFailed}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &coded{err, codeTrouble} })
	out.addFlag(cmd)
	cmd.Flags().StringSliceVar(&collections, "collections", collections, "collections to look at")
	return cmd
}

func (c *command) cover(cmd *cobra.Command, files, collections []string, out *format) (*survey.CoverageReport, error) {
	if err := out.check(); err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("name the configuration files that are to cover the fleet together")
	}
	if c.file != "" {
		return nil, errors.New("name the configuration files without --config")
	}
	var watches []*survey.Watch
	for _, file := range files {
		if slices.ContainsFunc(watches, func(w *survey.Watch) bool { return w.Name == file }) {
			return nil, fmt.Errorf("the file %q is named twice", file)
		}
		one := &command{cfg: Defaults(), file: file, stdout: c.stdout, stderr: c.stderr, env: c.env}
		w, done, err := one.watch(cmd)
		if err != nil {
			return nil, err
		}
		defer done()
		if !slices.Contains(collections, w.Collection) {
			return nil, fmt.Errorf("%s watches %s, which is not among --collections", file, w.Collection)
		}
		watches = append(watches, w)
	}
	p := newProgress(c.stderr)
	defer p.clear()
	report, err := survey.Cover(cmd.Context(), watches, collections, p.note)
	return report, advise(err)
}

// verdict is the answer in one line.
func verdict(r *survey.CoverageReport) string {
	resources, unwatched, overlapping, unreadable := 0, 0, 0, 0
	for _, c := range r.Collections {
		resources += c.Resources
		unwatched += c.Unwatched
		overlapping += c.Overlapping
		unreadable += c.Unreadable
	}
	if r.Proven && resources == 0 {
		return "covered: no resource was seen, so none is left out; make sure that the token sees the fleet"
	}
	if r.Proven {
		return fmt.Sprintf("covered: each of %s is watched by exactly one of %s",
			plural(resources, "resource", "resources"), plural(len(r.Configs), "configuration", "configurations"))
	}
	text := fmt.Sprintf("not covered: of %s %d are watched by nobody, %d by more than one configuration",
		plural(resources, "resource", "resources"), unwatched, overlapping)
	if unreadable > 0 {
		text += fmt.Sprintf(", and %d can not be read", unreadable)
	}
	return text
}

func writeCoverage(p *page, r *survey.CoverageReport) {
	p.linef("%s.", verdict(r))
	var rows [][]string
	for _, c := range r.Configs {
		rows = append(rows, []string{c.Name, c.Collection, fmt.Sprint(c.Selected), fmt.Sprint(c.Alone), selected(c.Selector)})
	}
	p.table("CONFIGURATIONS", []string{"FILE", "COLLECTION", "SELECTED", "ALONE", "SELECTOR"}, rows)
	rows = nil
	for _, c := range r.Collections {
		if !c.Served {
			rows = append(rows, []string{c.Collection, "0", "0", "0", c.Endpoint, "not served"})
			continue
		}
		rows = append(rows, []string{
			c.Collection, fmt.Sprint(c.Resources), fmt.Sprint(c.Unwatched), fmt.Sprint(c.Overlapping), c.Endpoint, holds(c),
		})
	}
	p.table("LOOKED AT", []string{"COLLECTION", "RESOURCES", "UNWATCHED", "OVERLAPPING", "AT", "HOLDS"}, rows)
	for _, c := range r.Collections {
		if c.Unwatched > 0 {
			p.table(fmt.Sprintf("WATCHED BY NOBODY: %s at %s", c.Collection, c.Endpoint), []string{"LABELS", "RESOURCES", "FOR EXAMPLE"}, groupRows(c.Gaps, false))
		}
		if c.Overlapping > 0 {
			p.table(fmt.Sprintf("WATCHED BY SEVERAL: %s at %s", c.Collection, c.Endpoint), []string{"LABELS", "RESOURCES", "FOR EXAMPLE", "BY"}, groupRows(c.Overlaps, true))
		}
	}
	p.linef("")
	p.linef("SELECTED, ALONE and RESOURCES are as they were counted while the fleet was read.")
	for _, c := range r.Collections {
		if c.WalkOnly != "" {
			p.linef("%s: what changed while it was read may count as it was or as it is: %s.", c.Collection, c.WalkOnly)
		}
	}
}

// holds says for when a finding is true.
func holds(c survey.CoveredCollection) string {
	if c.At.IsZero() {
		return "from " + span(c.Began, c.Ended)
	}
	return "at " + c.At.Format("2006-01-02 15:04:05Z")
}

func groupRows(groups []survey.Group, by bool) [][]string {
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
			text = "whatever its labels"
		}
		row := []string{text, fmt.Sprint(g.Resources), g.Example}
		if by && g.Others {
			row = append(row, "several")
		} else if by {
			row = append(row, strings.Join(g.Configs, ", "))
		}
		rows = append(rows, row)
	}
	return rows
}
