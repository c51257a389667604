package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// writeThirdPartyPackageLists writes the third-party packages that each binary links to
// tools/deps/<binary>.txt. The files are committed, so that a new dependency is visible in review.
func writeThirdPartyPackageLists(ctx context.Context, binaries []string) error {
	for _, binary := range binaries {
		text, err := listThirdPartyPackages(ctx, binary)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join("tools", "deps", binary+".txt"), text, 0o644); err != nil { //nolint:gosec // a file of the repository, for everyone to read
			return err
		}
	}
	return nil
}

// listThirdPartyPackages returns the packages outside the standard library that binary links, one per line,
// in the order of go list.
func listThirdPartyPackages(ctx context.Context, binary string) (sortedLines []byte, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-tags=grpcnotrace", "-f", `{{if not .Standard}}{{.ImportPath}}{{end}}`, "./cmd/"+binary) //nolint:gosec // the binary's name is ours
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages of %q: %w", binary, err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	var buf bytes.Buffer
	for _, l := range lines {
		fmt.Fprintln(&buf, l)
	}
	return buf.Bytes(), nil
}
