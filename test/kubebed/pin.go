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
	kubernetes = "k8s.io/kubernetes"
	moduleDir  = "internal/kube/kubebed/programs/module"
	moduleName = "github.com/fleetloop/fleetloop/" + moduleDir
)

// pinCommand writes the module of the programs for a release of Kubernetes.
func pinCommand(stderr io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "pin VERSION",
		Short: "Write the module that the programs are built from for a release of Kubernetes, such as 1.37.1",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return pin(cmd.Context(), stderr, strings.TrimPrefix(args[0], "v"), moduleDir)
		},
	}
}

// pin writes go.mod and go.sum into dir, which has the other files.
//
// Kubernetes requires its libraries at v0.0.0 and points them at folders that
// its archive does not hold; our replacements point them at their releases.
func pin(ctx context.Context, stderr io.Writer, version, dir string) (err error) {
	minor, ok := strings.CutPrefix(version, "1.")
	if !ok {
		return fmt.Errorf("version %q: give one such as 1.37.1", version)
	}
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
	text, err := goMod(goTool, version, "v0."+minor)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "go.mod"), text, 0o600); err != nil {
		return err
	}
	if err := copyFiles(dir, ".txt", tmp, "", "main.go", "kubelet.go"); err != nil {
		return err
	}
	if _, err := goTool("mod", "tidy"); err != nil {
		return err
	}
	return copyFiles(tmp, "", dir, ".txt", "go.mod", "go.sum")
}

// goMod makes a go.mod that requires a release of Kubernetes and replaces its
// libraries.
func goMod(goTool func(...string) ([]byte, error), version, libraries string) ([]byte, error) {
	out, err := goTool("mod", "download", "-json", kubernetes+"@v"+version)
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
	fmt.Fprintf(&b, "module %s\n\ngo %s\n\nrequire %s v%s\n\nreplace (\n", moduleName, file.Go, kubernetes, version)
	for _, r := range file.Replace {
		if strings.HasPrefix(r.New.Path, "./staging/") {
			fmt.Fprintf(&b, "\t%s => %[1]s %s\n", r.Old.Path, libraries)
		}
	}
	b.WriteString(")\n")
	return b.Bytes(), nil
}

// copyFiles copies files whose names have another ending there.
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
