package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
)

type historyOptions struct {
	scope
	format    string
	noHeaders bool
}

func newHistoryCommand(s *session) *cobra.Command {
	var o historyOptions
	cmd := &cobra.Command{
		Use:   "history KIND NAME|ID",
		Short: "Show who changed the spec of a cluster or node pool",
		Long: "Show the generations of a cluster or node pool, newest first: author, time, and the fields that changed.\n" +
			"The fleet API keeps the newest 20 generations unless it is configured otherwise.",
		Example:           "  fleetloop history cluster eu-1\n  fleetloop history nodepool eu-1/workers -o yaml",
		ValidArgsFunction: s.completeKindOrNameOf(v1.CollectionClusters, v1.CollectionNodePools),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := CheckFormat(cmd, o.format, summaryFormats()); err != nil {
				return err
			}
			_, revisions, err := fetchItemAndRevisions(s, cmd, args, &o.scope)
			if err != nil {
				return err
			}
			if o.format != terminal.FormatTable {
				return WriteYAMLOrJSON(s.env.Stdout, o.format, v1.RevisionList{Items: revisions})
			}
			return printHistory(s, revisions, o.noHeaders)
		},
	}
	o.addFlags(s, cmd, false)
	AddOutputFlag(cmd, &o.format, summaryFormats())
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "do not print column headers")
	return cmd
}

// fetchItemAndRevisions reads all kept generations of the named resource.
func fetchItemAndRevisions(s *session, cmd *cobra.Command, args []string, sc *scope) (resource.Item, []v1.Revision, error) {
	what, err := sc.parseTarget(cmd, args)
	if err != nil {
		return resource.Item{}, nil, err
	}
	if len(what.refs) != 1 {
		return resource.Item{}, nil, usageErrorf(cmd, "give one of the %s by name or id", what.kind.Collection)
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return resource.Item{}, nil, err
	}
	defer client.CloseIdle()
	items, err := what.findItems(cmd.Context(), client)
	if err != nil {
		return resource.Item{}, nil, err
	}
	revisions, err := readRevisions(cmd.Context(), client, items[0])
	return items[0], revisions, err
}

func readRevisions(ctx context.Context, client *fleetclient.Client, i resource.Item) ([]v1.Revision, error) {
	list := []v1.Revision{}
	for r, err := range client.Collection(i.Kind.Collection).Revisions(ctx, i.Resource.ID) {
		if fleetclient.IsNotFound(err) {
			return nil, &failure{
				err:  fmt.Errorf("%s has no history: %w", i.KindAndName(), err),
				code: CodeFailed,
				next: "use a fleet API of the same release; only clusters and node pools have a history",
			}
		}
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

func printHistory(s *session, revisions []v1.Revision, noHeaders bool) error {
	var rows [][]terminal.Cell
	if !noHeaders {
		rows = append(rows, terminal.PlainRow("GENERATION", "AGE", "ACTOR", "CHANGED"))
	}
	for n := range revisions {
		r := &revisions[n]
		var before *v1.Revision // the newest is the first
		if n+1 < len(revisions) {
			before = &revisions[n+1]
		}
		generation := strconv.FormatInt(r.Generation, 10)
		age := terminal.Since(s.env.Now(), r.CreatedTime)
		rows = append(rows, terminal.PlainRow(generation, age, r.Actor, summarizeRevision(before, r)))
	}
	table := terminal.Table{Colour: s.useColour()}
	return table.WriteRows(s.env.Stdout, rows)
}

// maxFieldsInRow is the maximum number of fields in a row of the history.
const maxFieldsInRow = 3

// summarizeRevision names the fields that a generation changed. The one before it is nil if it is
// not kept.
func summarizeRevision(before, r *v1.Revision) string {
	switch {
	case r.Deleting:
		return "deletion requested"
	case before == nil && r.Generation == 1:
		return "created"
	case before == nil:
		return "-"
	}
	var fields []string
	for _, c := range diffRevisions(before, r) {
		fields = append(fields, c.Field)
	}
	if more := len(fields) - maxFieldsInRow; more > 0 {
		fields = append(fields[:maxFieldsInRow], fmt.Sprintf("%d more", more))
	}
	return strings.Join(fields, ", ")
}

// diffRevisions returns the fields in which two generations differ.
func diffRevisions(from, to *v1.Revision) []changeevent.FieldChange {
	return append(
		timeline.DiffJSONFields("spec", from.Spec, to.Spec),
		timeline.DiffJSONFields("labels", labelsAsJSON(from), labelsAsJSON(to))...,
	)
}

// labelsAsJSON returns the labels of a generation, or nil without any.
func labelsAsJSON(r *v1.Revision) json.RawMessage {
	text, err := json.Marshal(r.Labels)
	if err != nil || len(r.Labels) == 0 { // strings cause no error
		return nil
	}
	return text
}

func newDiffCommand(s *session) *cobra.Command {
	var sc scope
	var from, to int64
	var files fileOptions
	format := ""
	cmd := &cobra.Command{
		Use:   "diff KIND NAME|ID --revision GENERATION | -f FILE|DIR|-",
		Short: "Compare two generations of a cluster or node pool, or files with the resources",
		Long: "Compare the spec and labels of a generation with those of the newest one, or of --to. A line begins with + if\n" +
			"the field was added, with - if it was removed, and with ~ if it has another value.\n\n" +
			"With -f, print a unified diff of what 'fleetloop apply' would change. As with kubectl, the exit code is 0 without\n" +
			"differences, 1 with differences, and greater than 1 after an error.",
		Example:           "  fleetloop diff cluster eu-1 --revision 3\n  fleetloop diff cluster eu-1 --revision 3 --to 4 -o json\n  fleetloop diff -f fleet/ -R",
		ValidArgsFunction: s.completeKindOrNameOf(v1.CollectionClusters, v1.CollectionNodePools),
		RunE: func(cmd *cobra.Command, args []string) error {
			formats := []string{formatText, terminal.FormatJSON, terminal.FormatYAML}
			if err := CheckFormat(cmd, format, formats); err != nil {
				return err
			}
			if files.file != "" {
				if len(args) > 0 || from != 0 || to != 0 || format != formatText {
					return usageErrorf(cmd, "-f cannot be combined with names, --revision, --to or -o")
				}
				return runFileDiff(s, cmd, files)
			}
			if from <= 0 || to < 0 {
				return usageErrorf(cmd, "give a generation with --revision; 'fleetloop history' lists them")
			}
			item, revisions, err := fetchItemAndRevisions(s, cmd, args, &sc)
			if err != nil {
				return err
			}
			changes, err := compareRevisions(item, revisions, from, to)
			if err != nil {
				return err
			}
			if format != formatText {
				return WriteYAMLOrJSON(s.env.Stdout, format, changes)
			}
			return printDiff(s, changes)
		},
	}
	sc.addFlags(s, cmd, false)
	files.addFileFlags(cmd)
	cmd.Flags().Int64Var(&from, "revision", 0, "`generation` to compare from")
	cmd.Flags().Int64Var(&to, "to", 0, "`generation` to compare with; 0 for the newest")
	AddOutputFlag(cmd, &format, []string{formatText, terminal.FormatJSON, terminal.FormatYAML})
	return cmd
}

// compareRevisions returns the fields in which two generations differ; 0 is the newest.
func compareRevisions(i resource.Item, revisions []v1.Revision, from, to int64) ([]changeevent.FieldChange, error) {
	if len(revisions) == 0 {
		return nil, errors.New("the server has no generation of " + i.KindAndName())
	}
	fromRevision, err := findRevisionOrNewest(i, revisions, from)
	if err != nil {
		return nil, err
	}
	toRevision, err := findRevisionOrNewest(i, revisions, to)
	if err != nil {
		return nil, err
	}
	return append([]changeevent.FieldChange{}, diffRevisions(fromRevision, toRevision)...), nil // a list in JSON, never null
}

// findRevisionOrNewest returns a generation; 0 is the newest. The newest revision is the first.
func findRevisionOrNewest(i resource.Item, revisions []v1.Revision, generationOrZero int64) (*v1.Revision, error) {
	if generationOrZero == 0 {
		return &revisions[0], nil
	}
	for n := range revisions {
		if revisions[n].Generation == generationOrZero {
			return &revisions[n], nil
		}
	}
	oldest, newest := revisions[len(revisions)-1].Generation, revisions[0].Generation
	return nil, &failure{
		err:  fmt.Errorf("generation %d of %s is not kept; the kept ones are %d to %d", generationOrZero, i.KindAndName(), oldest, newest),
		code: CodePrecondition,
		next: "run 'fleetloop history' to list the generations",
	}
}

func printDiff(s *session, changes []changeevent.FieldChange) error {
	if len(changes) == 0 {
		s.printNote("The generations have the same spec and labels.")
	}
	for _, c := range changes {
		line := fmt.Sprintf("~ %s: %s -> %s", c.Field, c.Before, c.After)
		switch {
		case len(c.Before) == 0:
			line = fmt.Sprintf("+ %s: %s", c.Field, c.After)
		case len(c.After) == 0:
			line = fmt.Sprintf("- %s: %s", c.Field, c.Before)
		}
		if _, err := fmt.Fprintln(s.env.Stdout, terminal.ReplaceUnprintable(line)); err != nil {
			return err
		}
	}
	return nil
}
