package binaries_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/devstack/binaries"
)

// newRepository returns a repository with one commit for each subject.
func newRepository(t *testing.T, subjects ...string) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet")
	for _, s := range subjects {
		if err := os.WriteFile(filepath.Join(dir, "subject"), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		git(t, dir, "add", "subject")
		git(t, dir, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "--message="+s)
	}
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestPreviousReleaseIsTheNewestTag holds that a release is compared with the one before it, and
// candidates with none.
func TestPreviousReleaseIsTheNewestTag(t *testing.T) {
	t.Parallel()
	dir := newRepository(t, "a", "b", "c", "d")
	fixed := binaries.FindPreviousRelease(t.Context(), dir)
	for _, step := range []struct{ reason, tag, at, want string }{
		{"the release itself is not an older one", "v1.0.0", "HEAD", fixed},
		{"a candidate is no release", "v1.0.0-rc.1", "HEAD~1", fixed},
		{"the newest older release", "v0.8.0", "HEAD~3", "v0.8.0"},
		{"the newest older release", "v0.9.0", "HEAD~2", "v0.9.0"},
		{"not a release", "other", "HEAD~1", "v0.9.0"},
	} {
		git(t, dir, "tag", step.tag, step.at)
		if got := binaries.FindPreviousRelease(t.Context(), dir); got != step.want {
			t.Errorf("%s: after tag %s of %s the previous release is %s, want %s", step.reason, step.tag, step.at, got, step.want)
		}
	}
}

// TestCheckOut holds that the source of a commit is written, and that a clone without it fails with the
// command that fetches it.
func TestCheckOut(t *testing.T) {
	t.Parallel()
	full := newRepository(t, "old", "new")
	commit := git(t, full, "rev-parse", "HEAD^")
	dir := filepath.Join(t.TempDir(), "source")
	if err := binaries.CheckOut(t.Context(), full, commit, dir); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "subject")); err != nil || string(got) != "old" {
		t.Errorf("the source is %q (%v), want that of the old commit", got, err)
	}
	shallow := filepath.Join(t.TempDir(), "shallow")
	git(t, full, "clone", "--quiet", "--depth=1", "file://"+full, shallow)
	err := binaries.CheckOut(t.Context(), shallow, commit, filepath.Join(t.TempDir(), "source"))
	if err == nil || !strings.Contains(err.Error(), commit) || !strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("a shallow clone: %v, want the commit and the command", err)
	}
}
