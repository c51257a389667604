package binaries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// previousCommit stands for the previous release until a release has a tag. This source adds a migration,
// fields of a CustomResourceDefinition and rules of an admission policy to it. Older commits lack the public
// kit for adapters, or their manifests do not fit their programs.
const previousCommit = "8b20156ff45044c7a511f6b30e342585507d3aaf"

// FindPreviousRelease returns the newest tag of a release before HEAD, or previousCommit if there is none.
// root is the folder of the source.
func FindPreviousRelease(ctx context.Context, root string) string {
	// The commit of a release has a tag, too: its previous release is an older one.
	out, err := runGit(ctx, root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "--exclude=*-*", "HEAD^")
	if err != nil {
		return previousCommit
	}
	return out
}

// CheckOut writes the source of a commit or tag into a new folder.
func CheckOut(ctx context.Context, root, commit, dir string) error {
	if _, err := runGit(ctx, root, "rev-parse", "--verify", "--quiet", commit+"^{commit}"); err != nil {
		return fmt.Errorf("commit %s, the previous release, is not in this clone: run 'git fetch --unshallow --tags'", commit)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // source that anyone may read
		return err
	}
	archive := filepath.Join(dir, ".source.tar")
	if _, err := runGit(ctx, root, "archive", "--format=tar", "--output="+archive, commit); err != nil {
		return fmt.Errorf("read the source of %s: %w", commit, err)
	}
	if out, err := exec.CommandContext(ctx, "tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil { //nolint:gosec // our own file
		return fmt.Errorf("unpack the source of %s: %w: %s", commit, err, out)
	}
	return os.Remove(archive)
}

func runGit(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...) //nolint:gosec // our own arguments
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(exit.Stderr))
	}
	return string(bytes.TrimSpace(out)), err
}
