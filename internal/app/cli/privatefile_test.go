package cli

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
)

func incrementText(old []byte) ([]byte, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(append([]byte("0"), old...))))
	return fmt.Append(nil, n+1), err
}

// TestUpdatePrivateFileLosesNothing covers writers at once, on a file whose folder does not exist yet.
func TestUpdatePrivateFileLosesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "file")
	const writers = 20
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			if err := updatePrivateFile(t.Context(), path, incrementText); err != nil {
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
	if err != nil || !isPrivateFile(info) {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestUpdatePrivateFile covers a file that others may read, a link to it, and a change that fails.
func TestUpdatePrivateFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(path, []byte("1"), 0o644), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	if err := updatePrivateFile(t.Context(), link, incrementText); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || !isPrivateFile(info) {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info.Mode(), err)
	}
	failed := errors.New("failed")
	if err := updatePrivateFile(t.Context(), path, func([]byte) ([]byte, error) { return nil, failed }); !errors.Is(err, failed) {
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

// TestUpdatePrivateFileWaits covers a writer that does not end: the other one waits as long as its caller allows.
func TestUpdatePrivateFileWaits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	err := updatePrivateFile(t.Context(), path, func([]byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return nil, updatePrivateFile(ctx, path, incrementText)
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}
