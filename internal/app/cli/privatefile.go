package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	privateFileMode   fs.FileMode = 0o600
	privateFolderMode fs.FileMode = 0o700

	// fileLockInterval is the interval at which a taken lock is tried again.
	fileLockInterval = 20 * time.Millisecond
)

// updatePrivateFile replaces the content of a file by the result of change, and gives it mode 0600.
//
// change gets the current content, nil if there is no file. The file and its folder are created if they do
// not exist. If change fails, nothing is written. The new file is created before change is called, so that a
// disk that is full or read-only is noticed first.
//
// Readers see the old content or the new one, also after a crash. Processes that change the same file wait for
// each other, so that no change is lost. Their lock is a file beside it, with the suffix ".lock", which stays.
func updatePrivateFile(ctx context.Context, path string, change func(old []byte) ([]byte, error)) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), privateFolderMode); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the link stays
	}
	unlock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	defer unlock()
	old, err := os.ReadFile(path) //nolint:gosec // the caller names the file
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		_ = next.Close()
		if err != nil {
			_ = os.Remove(next.Name())
		}
	}()
	data, err := change(old)
	if err != nil {
		return err
	}
	if _, err = next.Write(data); err != nil {
		return err
	}
	if err = next.Sync(); err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}

// isPrivateFile reports whether only the owner may read a file.
func isPrivateFile(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 == 0 }

// lockFile takes the lock of a file. A process that ends gives its locks up.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, privateFileMode) //nolint:gosec // beside the file of the caller
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // which unlocks
		}
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			err = backoff.Sleep(ctx, fileLockInterval)
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
	}
}
