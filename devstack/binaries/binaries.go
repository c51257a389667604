// Package binaries builds the product's binaries for tests, as tools/release releases them, also those of
// the previous release.
//
// All tests use the same flags, so that the compiler runs once for each package.
package binaries

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds the named binaries of cmd/ into a folder. Without names it builds all.
//
// The versions of dependencies are those of the product's module, also if the test is in another one.
func Build(ctx context.Context, dir string, names ...string) error {
	root, err := ModuleRoot(ctx)
	if err != nil {
		return err
	}
	var packages []string
	for _, name := range names {
		packages = append(packages, "./cmd/"+name)
	}
	if len(names) == 0 {
		packages = []string{"./cmd/..."}
	}
	return BuildPackages(ctx, root, dir, packages...)
}

// ModuleRoot returns the folder of the product's source.
func ModuleRoot(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/fleetloop/fleetloop").Output()
	if err != nil {
		return "", fmt.Errorf("find the source of the binaries: %w", err)
	}
	return strings.TrimSpace(string(root)), nil
}

// BuildPackages builds programs of the source in root into a folder.
func BuildPackages(ctx context.Context, root, dir string, packages ...string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("find the folder for the binaries: %w", err)
	}
	args := append([]string{"build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", dir + "/"}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // our own programs
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binaries: %w\n%s", err, out)
	}
	return nil
}
