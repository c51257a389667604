package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

type editOptions struct {
	scope
	format string
	dryRun dryRun
}

func newEditCommand(s *session) *cobra.Command {
	var o editOptions
	cmd := &cobra.Command{
		Use:   "edit KIND NAME|ID",
		Short: "Edit the labels, annotations and spec of a resource in an editor",
		Long: "Open the labels, annotations and spec of a resource as YAML in the editor of VISUAL or EDITOR, or in vi, and replace\n" +
			"them when it is closed. The editor is opened again if the file is invalid or the server rejects it. A file without\n" +
			"changes cancels the edit. If the resource was changed meanwhile, the edit fails and the file is kept.",
		Example:           "  fleetloop edit cluster eu-1\n  EDITOR='code --wait' fleetloop edit nodepool eu-1/workers",
		ValidArgsFunction: s.completeKindOrName,
		RunE:              func(cmd *cobra.Command, args []string) error { return runEdit(s, cmd, args, o) },
	}
	o.addFlags(s, cmd, false)
	o.dryRun.addFlag(cmd)
	AddOutputFlag(cmd, &o.format, changeFormats())
	return cmd
}

func runEdit(s *session, cmd *cobra.Command, args []string, o editOptions) error {
	if err := CheckFormat(cmd, o.format, changeFormats()); err != nil {
		return err
	}
	what, err := o.parseTarget(cmd, args)
	if err != nil {
		return err
	}
	if len(what.refs) != 1 {
		return usageErrorf(cmd, "give one of the %s by name or id", what.kind.Collection)
	}
	client, err := s.newClient(cmd)
	if err != nil {
		return err
	}
	defer client.CloseIdle()
	items, err := what.findItems(cmd.Context(), client)
	if err != nil {
		return err
	}
	item := items[0]
	collection := item.Kind.Collection
	var etag string
	item.Resource, etag, err = client.Collection(collection).GetWithETag(cmd.Context(), item.Resource.ID)
	if err != nil {
		return err
	}

	e := &editing{session: s, item: item, etag: etag, writes: o.dryRun.collection(client, collection)}
	after, err := e.editUntilAccepted(cmd.Context())
	if err != nil || after == nil {
		return err
	}
	out := s.newChangedResourcePrinter(o.format, true, o.dryRun.describe("edited"))
	if err := out.Write([]resource.Item{*after}); err != nil {
		return err
	}
	return out.Close()
}

// editing is one resource in an editor.
type editing struct {
	*session

	item   resource.Item // as it was read with the ETag
	etag   string
	writes *fleetclient.Collection
	file   string // a temporary file with the content that is edited
}

// editUntilAccepted returns the changed resource, or nil if the user cancelled.
func (e *editing) editUntilAccepted(ctx context.Context) (*resource.Item, error) {
	content, err := e.editableYAML()
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp("", "fleetloop-edit-*.yaml")
	if err != nil {
		return nil, err
	}
	e.file = f.Name()
	if err := f.Close(); err != nil {
		return nil, err
	}
	var refused error // why the last edit was not accepted
	for {
		edited, err := e.editTextInEditor(ctx, editHeader(refused)+content)
		if err != nil {
			return nil, e.keepFile(err)
		}
		if edited == content || edited == "" {
			_ = os.Remove(e.file) // a temporary file
			if refused != nil && edited != "" {
				return nil, &failure{err: refused, code: ExitCode(refused), next: "the edit was cancelled; nothing was changed"}
			}
			e.printNote("Edit cancelled, no changes made.")
			return nil, nil
		}
		content = edited
		after, err := e.patchFromFile(ctx)
		switch {
		case err == nil:
			_ = os.Remove(e.file) // a temporary file
			return after, nil
		case !mayEditAgain(err):
			return nil, e.keepFile(err)
		}
		refused = err
	}
}

// editableYAML returns what is edited. It omits the annotation of apply, which users do not write.
func (e *editing) editableYAML() (string, error) {
	head := "kind: " + e.item.Kind.Name + "\nname: " + e.item.Resource.Name + "\n"
	if e.item.Kind.IsChild() {
		head += "cluster: " + e.item.Owner + "\n"
	}
	text, err := formatDesiredYAML(resource.DesiredOf(e.item.Resource))
	return head + text, err
}

func editHeader(refused error) string {
	var b strings.Builder
	b.WriteString("# Edit the labels, annotations and spec. Lines that begin with # are ignored.\n" +
		"# A file without changes, or without content, cancels the edit.\n")
	if refused != nil {
		for line := range strings.SplitSeq(refused.Error(), "\n") {
			b.WriteString("# error: " + line + "\n")
		}
	}
	return b.String()
}

// editTextInEditor returns the edited text without the comments at its beginning.
func (e *editing) editTextInEditor(ctx context.Context, text string) (string, error) {
	if err := os.WriteFile(e.file, []byte(text), 0o600); err != nil {
		return "", err
	}
	visual, _ := e.env.LookupEnv("VISUAL")
	editor, _ := e.env.LookupEnv("EDITOR")
	editor = cmp.Or(visual, editor, "vi")
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", e.file) //nolint:gosec // the user's own editor
	cmd.Stdin = e.env.Stdin
	cmd.Stdout = e.env.Stdout
	cmd.Stderr = e.env.Stderr
	if out, ok := e.env.Stdout.(*Output); ok {
		cmd.Stdout = out.w // an editor needs the terminal itself
	}
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run the editor %q: %w", editor, err)
	}
	edited, err := os.ReadFile(e.file)
	if err != nil {
		return "", err
	}
	for bytes.HasPrefix(edited, []byte("#")) {
		_, edited, _ = bytes.Cut(edited, []byte("\n"))
	}
	return string(bytes.TrimLeft(edited, "\n")), nil
}

func (e *editing) patchFromFile(ctx context.Context) (*resource.Item, error) {
	docs, err := resource.ReadDocuments(e.file, nil)
	if err != nil {
		return nil, NewUsageError(err, "")
	}
	d := docs[0]
	if len(docs) != 1 || !e.describesItem(d) {
		return nil, NewUsageError(fmt.Errorf("the file must describe %s alone; kind and name cannot be changed", e.item.KindAndName()), "")
	}
	want := resource.Desired{Labels: d.Labels, Annotations: d.Annotations, Spec: d.Spec}
	// The file does not have the annotation of apply, which stays.
	if applied := e.item.Resource.Annotations[resource.AppliedFieldsAnnotation]; applied != "" {
		want.Annotations = map[string]string{resource.AppliedFieldsAnnotation: applied}
		maps.Copy(want.Annotations, d.Annotations)
	}
	patched, err := e.writes.PatchIf(ctx, e.item.Resource.ID, e.etag, want.PatchRequest())
	if err != nil {
		return nil, err
	}
	after, err := itemOf(e.item.Kind, patched, e.item.Owner)
	return &after, err
}

func (e *editing) describesItem(d resource.Document) bool {
	if d.Ref.Kind != e.item.Kind || d.Name != e.item.Resource.Name {
		return false
	}
	return !e.item.Kind.IsChild() || d.Ref.Parent == e.item.Owner
}

// mayEditAgain reports whether another edit may solve an error: an invalid file, or one that the server rejects.
func mayEditAgain(err error) bool {
	if _, ok := errors.AsType[*failure](err); ok {
		return true
	}
	e, ok := errors.AsType[*fleetclient.Error](err)
	return ok && (e.Status == http.StatusBadRequest || e.Status == http.StatusRequestEntityTooLarge)
}

// keepFile adds the place of the edited file to an error.
func (e *editing) keepFile(err error) error {
	return &failure{
		err:  fmt.Errorf("edit %s: %w", e.item.KindAndName(), err),
		code: ExitCode(err),
		next: "your edit is in " + e.file,
	}
}
