package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

const (
	kubernetes  = "k8s.io/kubernetes"
	gardener    = "github.com/gardener/gardener"
	moduleDir   = "devstack/kubebed/module"
	gardenerDir = "devstack/kubebed/garden"
	here        = "github.com/fleetloop/fleetloop/" // common prefix of the module names
)

// pinVersionCommand writes the module of the programs for a release of Kubernetes or Gardener.
func pinVersionCommand(stderr io.Writer) *cobra.Command {
	var garden bool
	cmd := &cobra.Command{
		Use:   "pin VERSION",
		Short: "Update the Go module that builds the programs to a Kubernetes release, such as 1.37.1",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			version := strings.TrimPrefix(args[0], "v")
			minor, ok := strings.CutPrefix(version, "1.")
			if !ok {
				return fmt.Errorf("version %q must look like 1.37.1", version)
			}
			if garden {
				// The types are a separate module, which Gardener replaces by a folder that its
				// archive does not contain.
				return pinModules(cmd.Context(), stderr, gardenerDir, source{gardener, version, "./", version})
			}
			return pinModules(cmd.Context(), stderr, moduleDir, source{kubernetes, version, "./staging/", "0." + minor})
		},
	}
	cmd.Flags().BoolVar(&garden, "garden", false, "Gardener release, such as 1.138.0")
	return cmd
}

// A source is a module that replaces its libraries by folders, which its archive does not contain.
type source struct {
	module, version string
	folders         string // common prefix of these folders
	published       string // the version at which they are published
}

// pinModules writes go.mod and go.sum into dir, which contains the other files.
//
// Kubernetes and Gardener require their libraries at v0.0.0 and replace them by folders; these
// replacements use their releases.
func pinModules(ctx context.Context, stderr io.Writer, dir string, from source) (err error) {
	tmp, err := os.MkdirTemp("", "kubebed-pin-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	goTool := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // our own arguments
		cmd.Dir, cmd.Stderr = tmp, stderr
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
		}
		return out, err
	}
	text, err := newGoMod(goTool, dir, from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "go.mod"), text, 0o600); err != nil {
		return err
	}
	programs, err := listGoTxtFiles(dir)
	if err != nil {
		return err
	}
	if err := copyFiles(dir, ".txt", tmp, "", programs...); err != nil {
		return err
	}
	if _, err := goTool("mod", "tidy"); err != nil {
		return err
	}
	return copyFiles(tmp, "", dir, ".txt", "go.mod", "go.sum")
}

// listGoTxtFiles returns the Go files of a module's folder.
func listGoTxtFiles(dir string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*.go.txt"))
	for i, path := range found {
		found[i] = strings.TrimSuffix(filepath.Base(path), ".txt")
	}
	return found, err
}

// newGoMod returns a go.mod that requires a release and replaces its libraries.
func newGoMod(goTool func(...string) ([]byte, error), dir string, from source) ([]byte, error) {
	out, err := goTool("mod", "download", "-json", from.module+"@v"+from.version)
	if err != nil {
		return nil, err
	}
	var module struct{ GoMod string }
	if err := json.Unmarshal(out, &module); err != nil {
		return nil, err
	}
	if out, err = goTool("mod", "edit", "-json", module.GoMod); err != nil {
		return nil, err
	}
	var file struct {
		Go      string
		Replace []struct{ Old, New struct{ Path string } }
	}
	if err := json.Unmarshal(out, &file); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "module %s\n\ngo %s\n\nrequire %s v%s\n\nreplace (\n", here+dir, file.Go, from.module, from.version)
	for _, r := range file.Replace {
		if strings.HasPrefix(r.New.Path, from.folders) {
			fmt.Fprintf(&b, "\t%s => %[1]s v%s\n", r.Old.Path, from.published)
		}
	}
	b.WriteString(")\n")
	return b.Bytes(), nil
}

// copyFiles copies files and changes their extension.
func copyFiles(from, fromEnding, to, toEnding string, names ...string) error {
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(from, name+fromEnding)) //nolint:gosec // files of the repository
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name+toEnding), content, 0o644); err != nil { //nolint:gosec // files of the repository, for everyone to read
			return err
		}
	}
	return nil
}
