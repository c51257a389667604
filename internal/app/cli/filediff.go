package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

// errDiffers is the exit code of a diff that is not empty.
var errDiffers = errors.New("there are differences")

// runFileDiff prints what apply would change. It exits like kubectl diff: 1 means differences, and errors have other codes.
func runFileDiff(s *session, cmd *cobra.Command, o fileOptions) error {
	docs, err := o.readUniqueDocumentsParentsFirst(s, cmd)
	if err != nil {
		return err
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	differs := false
	var errs []error
	for _, d := range docs {
		text, err := diffDocument(cmd.Context(), client, d)
		if err != nil {
			errs = append(errs, fmt.Errorf("diff %s (%s): %w", d.Ref, d.Where, err))
			continue
		}
		differs = differs || text != ""
		if _, err := io.WriteString(s.env.Stdout, text); err != nil {
			return err
		}
	}
	switch err := joinErrorsWithExitCode(errs, len(docs)-len(errs)); {
	case err != nil && ExitCode(err) == CodeFailed:
		return &failure{err: err, code: CodeDiffFailed, next: nextStepFor(err)}
	case err != nil:
		return err
	case differs:
		return errDiffers
	}
	return nil
}

// diffDocument returns the changes that a document makes, as a unified diff of YAML.
func diffDocument(ctx context.Context, client *fleetclient.Client, d resource.Document) (string, error) {
	a := &applier{client: client, kept: map[string]bool{}}
	live, err := a.findLive(ctx, d)
	if errors.Is(err, resource.ErrNotFound) {
		live, err = liveResource{missing: true}, nil // the parent is missing, too
	}
	if err != nil {
		return "", err
	}
	name, before := resource.Item{Kind: d.Ref.Kind, Resource: live.item, Owner: d.Ref.Parent}, ""
	if live.missing {
		name.Resource.Name, live.item.Spec = d.Name, []byte("{}")
	} else if before, err = formatDesiredYAML(resource.DesiredOf(live.item)); err != nil {
		return "", err
	}
	want, err := resource.ThreeWayMerge(live.item, d)
	if err != nil {
		return "", err
	}
	after, err := formatDesiredYAML(want)
	if err != nil {
		return "", err
	}
	return udiff.Unified(name.KindAndName()+" (live)", name.KindAndName()+" (applied)", before, after), nil
}

// formatDesiredYAML returns YAML with sorted keys. It omits the annotation of apply, which users do not write.
func formatDesiredYAML(d resource.Desired) (string, error) {
	d.Annotations = maps.Clone(d.Annotations)
	delete(d.Annotations, resource.AppliedFieldsAnnotation)
	spec, err := resource.SortKeys(d.Spec)
	if err != nil {
		return "", err
	}
	d.Spec = spec
	text, err := json.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("write JSON: %w", err)
	}
	out, err := resource.JSONToYAML(text)
	return string(out), err
}
