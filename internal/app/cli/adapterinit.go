package cli

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
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

// modulePath is the path of the Go module of Fleetloop.
const modulePath = "github.com/fleetloop/fleetloop"

// adapterOptions describe a new adapter.
type adapterOptions struct {
	name       string
	module     string
	collection string
	version    string // of Fleetloop, as a module; empty for a build without a tag
	source     string // folder of Fleetloop that replaces the module; empty for none
	dir        string
}

func newAdapterCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adapter",
		Short: "Start a new adapter",
		Args:  RejectUnknownCommand,
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
			"As it is, the adapter keeps the spec of each resource in a file. Change reconcile.go to do your work.\n\n" +
			"No other adapter of the fleet may have the name. Those of 'fleetloop up' are validation, dns, provisioning and gardener.\n\n" +
			"Often a file for adapter-runner is enough, without code.",
		Example:           "  fleetloop adapter init registry --module=example.com/registry\n  cd registry && go mod tidy && go test ./...",
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
			if o.source, err = o.locateSource(); err != nil {
				return usageError(cmd, err)
			}
			return runAdapterInit(s, o)
		},
	}
	cmd.Flags().StringVar(&o.module, "module", "", "`path` of the Go module (default example.com/NAME)")
	cmd.Flags().StringVar(&o.dir, "dir", "", "`folder` to write to, which must be empty or not exist (default NAME)")
	cmd.Flags().StringVar(&o.source, "replace", "",
		"`folder` with the source of Fleetloop, for go.mod (default none; for a development build, the folder in which it was built)")
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
	if err := writeAdapterFromTemplate(o); err != nil {
		return fmt.Errorf("write the adapter %s: %w", o.name, err)
	}
	_, err := fmt.Fprintf(s.env.Stdout, "adapter %s written to %s\n\nNext:\n  cd %s\n  %s\n\nWhile 'fleetloop up --demo' runs, with the adapter.env of its data directory:\n  (. DIR/adapter.env && go run .)\n",
		o.name, o.dir, o.dir, strings.Join(firstCommands(), "\n  "))
	return err
}

// firstCommands returns the first commands in the new repository.
func firstCommands() []string { return []string{"go mod tidy", "go test ./..."} }

// locateSource returns the absolute path of the source that replaces the module. A development build needs
// one, because Go cannot download its version.
func (o adapterOptions) locateSource() (string, error) {
	switch {
	case o.source != "" && !isSource(o.source):
		return "", fmt.Errorf("--replace %s: the folder has no source of Fleetloop", o.source)
	case o.source != "":
		return filepath.Abs(o.source)
	case o.version != "":
		return "", nil
	}
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find path of this executable: %w", err)
	}
	for _, folder := range []string{filepath.Dir(filepath.Dir(program)), "."} { // "make build" writes to bin
		if isSource(folder) {
			return filepath.Abs(folder)
		}
	}
	return "", errors.New("this is a development build: give the folder with the source of Fleetloop with --replace")
}

// isSource reports whether a folder has the source of Fleetloop.
func isSource(folder string) bool {
	text, err := os.ReadFile(filepath.Join(folder, "go.mod")) //nolint:gosec // a folder of the user
	return err == nil && strings.HasPrefix(string(text), "module "+modulePath+"\n")
}

// formatGoModRequirement returns the directives of go.mod that select Fleetloop.
func (o adapterOptions) formatGoModRequirement() string {
	if o.source == "" {
		return "require " + modulePath + " " + o.version + "\n"
	}
	// The version has no effect. A quoted path may have spaces.
	return "require " + modulePath + " v0.0.0\n\nreplace " + modulePath + " => " + strconv.Quote(o.source) + "\n"
}

func writeAdapterFromTemplate(o adapterOptions) error {
	const root = "adaptertemplate"
	beforeDeploy := ""
	if o.source != "" {
		beforeDeploy = ", after you have replaced the source in `go.mod` by a release"
	}
	fill := strings.NewReplacer("{{.Name}}", o.name, "{{.Module}}", o.module, "{{.Collection}}", o.collection,
		"{{.Require}}", o.formatGoModRequirement(), "{{.Commands}}", strings.Join(firstCommands(), "\n"), "{{.BeforeDeploy}}", beforeDeploy)
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
