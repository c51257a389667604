// Package lockdir gives a folder to one process at a time, and removes
// temporary ones, also those of processes that were killed.
package lockdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// staleAfter is how old a temporary folder is before anyone asks whether it is
// in use still: its lock comes a moment after it.
const staleAfter = time.Minute

// lockName is the file in the folder that is locked.
const lockName = "lock"

// A Dir is a folder that is locked for as long as we use it. Processes that we
// start do not inherit the lock.
type Dir struct {
	// Path is where the folder is, absolute.
	Path string

	// Temporary is whether Close removes it.
	Temporary bool

	lock *os.File
}

// Open makes the folder and locks it. Empty is a temporary one whose name
// begins with prefix; those that killed processes left behind go then.
func Open(path, prefix string) (*Dir, error) {
	d := &Dir{Path: path, Temporary: path == ""}
	var err error
	if d.Temporary {
		removeStale(os.TempDir(), prefix)
		d.Path, err = os.MkdirTemp("", prefix)
	} else if d.Path, err = filepath.Abs(path); err == nil {
		err = os.MkdirAll(d.Path, 0o700)
	}
	if err != nil {
		return nil, err
	}
	if d.lock, err = os.OpenFile(d.Join(lockName), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if err := tryLock(d.lock); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("in use by another process")
		}
		return nil, errors.Join(fmt.Errorf("lock directory %q: %w", d.Path, err), d.lock.Close())
	}
	return d, nil
}

// Join is a path in the folder.
func (d *Dir) Join(elem ...string) string {
	return filepath.Join(append([]string{d.Path}, elem...)...)
}

// Close gives the folder back, and removes a temporary one.
func (d *Dir) Close() error {
	var err error
	if d.Temporary {
		err = os.RemoveAll(d.Path)
	}
	return errors.Join(err, d.lock.Close()) // which gives the lock back
}

func tryLock(lock *os.File) error {
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// removeStale removes the folders of processes that were killed. What it can not
// remove, or what has no lock, is somebody else's.
func removeStale(tmp, prefix string) {
	entries, _ := os.ReadDir(tmp)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), prefix) || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		dir := filepath.Join(tmp, e.Name())
		lock, err := os.Open(filepath.Join(dir, lockName)) //nolint:gosec // of the folders that we make
		if err != nil {
			continue
		}
		if tryLock(lock) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
