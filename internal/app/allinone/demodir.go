package allinone

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	demoPattern = "fleetloop-demo-*"
	// demoAbandoned is the minimum age of an unlocked folder for its removal.
	// A new folder has no lock for a moment.
	demoAbandoned = time.Minute
)

// createDemoDirAndRemoveAbandoned creates the folder of one demo in tmpDir and returns a function that removes it. It first
// removes the folders of killed demos, because nothing else would.
func createDemoDirAndRemoveAbandoned(tmpDir string) (dir string, remove func() error, err error) {
	removeAbandonedDemoDirs(tmpDir)
	if dir, err = os.MkdirTemp(tmpDir, demoPattern); err != nil {
		return "", nil, err
	}
	lock, err := os.OpenFile(demoLockPath(dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	remove = func() error { return errors.Join(os.RemoveAll(dir), lock.Close()) }
	err = errors.Join(
		lockFile(lock),
		os.Chmod(dir, 0o711), //nolint:gosec // the database's user may pass, and not look
	)
	if err != nil {
		return "", nil, errors.Join(err, remove())
	}
	return dir, remove, nil
}

// demoLockPath is the file that a demo keeps locked while it runs.
func demoLockPath(dir string) string { return filepath.Join(dir, "lock") }

// lockFile takes a lock without waiting. The kernel releases it when the process ends.
func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// removeAbandonedDemoDirs removes the folders of demos that ended without cleanup. Folders that it cannot remove
// stay.
func removeAbandonedDemoDirs(tmpDir string) {
	dirs, _ := filepath.Glob(filepath.Join(tmpDir, demoPattern)) // fails only for a bad pattern
	for _, dir := range dirs {
		if !isFolderOfThisUser(dir) {
			continue
		}
		lock, err := os.Open(demoLockPath(dir))
		if err != nil {
			continue
		}
		info, err := lock.Stat()
		if err == nil && time.Since(info.ModTime()) > demoAbandoned && lockFile(lock) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}

// isFolderOfThisUser reports whether dir is a folder of this user. In a folder that all users can write
// to, the content of another user is not trusted.
func isFolderOfThisUser(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
