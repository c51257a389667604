package kubebed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// staleAfter is the age at which an unlocked temporary folder counts as unused: a new
// folder is locked a moment after its creation.
const staleAfter = time.Minute

// lockName is the file in the folder that is locked.
const lockName = "lock"

// A LockedFolder is a folder that is locked until Close. Child processes do not inherit the
// lock.
type LockedFolder struct {
	// Path is the absolute path of the folder.
	Path string

	// Temporary is whether Close removes it.
	Temporary bool

	lock *os.File
}

// OpenLockedFolder creates and locks the folder. The empty path means a temporary folder whose name
// begins with prefix; folders that killed processes left behind are then removed.
func OpenLockedFolder(path, prefix string) (*LockedFolder, error) {
	d := &LockedFolder{Path: path, Temporary: path == ""}
	var err error
	if d.Temporary {
		removeStaleFolders(os.TempDir(), prefix)
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

// Join returns a path in the folder.
func (d *LockedFolder) Join(elem ...string) string {
	return filepath.Join(append([]string{d.Path}, elem...)...)
}

// Close unlocks the folder, and removes a temporary one.
func (d *LockedFolder) Close() error {
	var err error
	if d.Temporary {
		err = os.RemoveAll(d.Path)
	}
	return errors.Join(err, d.lock.Close()) // releases the lock
}

func tryLock(lock *os.File) error {
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// removeStaleFolders removes the folders of killed processes. It skips folders that it cannot
// remove, or that have no lock, as they belong to others.
func removeStaleFolders(tmp, prefix string) {
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
