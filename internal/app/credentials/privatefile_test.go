package credentials_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/credentials"
)

func increment(old []byte) ([]byte, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(append([]byte("0"), old...))))
	return fmt.Append(nil, n+1), err
}

// TestUpdateLosesNothing covers writers at once, on a file whose folder does not exist yet.
func TestUpdateLosesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "file")
	const writers = 20
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			if err := credentials.UpdatePrivateFile(t.Context(), path, increment); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != strconv.Itoa(writers) {
		t.Errorf("got %q, %v, want %d", got, err, writers)
	}
	info, err := os.Stat(path)
	if err != nil || !credentials.IsPrivateFile(info) {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestUpdate covers a file that others may read, a link to it, and a change that fails.
func TestUpdate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(path, []byte("1"), 0o644), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	if err := credentials.UpdatePrivateFile(t.Context(), link, increment); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || !credentials.IsPrivateFile(info) {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info.Mode(), err)
	}
	failed := errors.New("failed")
	if err := credentials.UpdatePrivateFile(t.Context(), path, func([]byte) ([]byte, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("got %v, want %v", err, failed)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "2" {
		t.Errorf("got %q, %v, want 2", got, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 { // the file, the link, the lock
		t.Errorf("%d files remain, %v", len(files), err)
	}
}

// TestUpdateWaits covers a writer that does not end: the other one waits as long as its caller allows.
func TestUpdateWaits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	err := credentials.UpdatePrivateFile(t.Context(), path, func([]byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return nil, credentials.UpdatePrivateFile(ctx, path, increment)
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}
