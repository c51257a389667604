package cli

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/version"
)

// adapterTemplate holds the files of a new adapter, with placeholders such as {{.Name}}.
//
//go:embed adaptertemplate
var adapterTemplate embed.FS

const templateSuffix = ".tmpl"

// adapterOptions describe a new adapter.
type adapterOptions struct {
	name       string
	module     string
	collection string
	version    string // of Fleetloop, as a module; empty for a build without a tag
	dir        string
}

func newAdapterCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adapter",
		Short: "Start a new adapter",
		Args:  rejectUnknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAdapterInitCommand(s))
	return cmd
}

func newAdapterInitCommand(s *session) *cobra.Command {
	o := adapterOptions{version: version.Get().Module}
	cmd := &cobra.Command{
		Use:   "init NAME",
		Short: "Write a repository with a new adapter",
		Long: "Write a repository with a new adapter in Go: the program, its conformance test, a Dockerfile and a Deployment.\n" +
			"As it is, the adapter keeps one object of a REST service for each resource. Change reconcile.go to do your work.\n\n" +
			"Often a file for adapter-runner is enough, without code.",
		Example:           "  fleetloop adapter init dns --module=example.com/dns\n  cd dns && go mod tidy && go test ./...",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			if wrong := validation.IsDNS1123Label(o.name); len(wrong) > 0 {
				return usageErrorf(cmd, "name %q: %s", o.name, strings.Join(wrong, "; "))
			}
			k, err := resource.ParseKind(o.collection)
			if err != nil {
				return usageError(cmd, err)
			}
			o.collection = k.Collection
			if o.module == "" {
				o.module = "example.com/" + o.name
			}
			if o.dir == "" {
				o.dir = o.name
			}
			return runAdapterInit(s, o)
		},
	}
	cmd.Flags().StringVar(&o.module, "module", "", "`path` of the Go module (default example.com/NAME)")
	cmd.Flags().StringVar(&o.dir, "dir", "", "`folder` to write to, which must be empty or not exist (default NAME)")
	cmd.Flags().StringVar(&o.collection, "kind", v1.CollectionClusters, "`kind` of the resources")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(resource.Collections(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runAdapterInit(s *session, o adapterOptions) error {
	if entries, err := os.ReadDir(o.dir); err == nil && len(entries) > 0 {
		return &failure{
			err: fmt.Errorf("folder %s is not empty", o.dir), code: CodePrecondition, next: "choose another one with --dir",
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writeAdapter(o); err != nil {
		return fmt.Errorf("write the adapter %s: %w", o.name, err)
	}
	_, err := fmt.Fprintf(s.env.Stdout, "adapter %s written to %s\n\nNext:\n  cd %s && %s\n", o.name, o.dir, o.dir, strings.Join(o.commands(), " && "))
	return err
}

// commands are the first commands in the new repository.
func (o adapterOptions) commands() []string {
	commands := []string{"go mod tidy", "go test ./..."}
	if o.version == "" {
		return append([]string{"go get github.com/fleetloop/fleetloop@latest"}, commands...)
	}
	return commands
}

// writeAdapter writes the files of the template.
func writeAdapter(o adapterOptions) error {
	const root = "adaptertemplate"
	require := ""
	if o.version != "" {
		require = "\nrequire github.com/fleetloop/fleetloop " + o.version + "\n"
	}
	fill := strings.NewReplacer("{{.Name}}", o.name, "{{.Module}}", o.module, "{{.Collection}}", o.collection,
		"{{.Require}}", require, "{{.Commands}}", strings.Join(o.commands(), "\n"))
	return fs.WalkDir(adapterTemplate, root, func(name string, entry fs.DirEntry, err error) error {
		target := filepath.Join(o.dir, filepath.FromSlash(strings.TrimSuffix(strings.TrimPrefix(name, root), templateSuffix)))
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return os.MkdirAll(target, 0o755) //nolint:gosec // a repository is for all users of the machine
		}
		text, err := adapterTemplate.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, []byte(fill.Replace(string(text))), 0o644) //nolint:gosec // as above
	})
}
