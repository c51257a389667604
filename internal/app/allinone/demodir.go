package allinone

import (
	"errors"
	"fmt"
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
	// demoLink is a link in the home directory of the user. It leads to the data directory of the demo that
	// started last, so that documentation has one path. A pattern in the folder of temporary files would also
	// match what other users put there.
	demoLink = ".local/state/fleetloop/demo"
)

// linkDemoDir links the data directory of a demo. It returns a function that removes the link unless
// another demo has replaced it.
func linkDemoDir(env func(string) (string, bool), dir string) (remove func() error, err error) {
	home, _ := env("HOME")
	if home == "" {
		return nil, errors.New("HOME is not set")
	}
	link := filepath.Join(home, filepath.FromSlash(demoLink))
	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		return nil, err
	}
	prepared := fmt.Sprintf("%s.%d", link, os.Getpid())
	if err := os.Symlink(dir, prepared); err != nil {
		return nil, err
	}
	if err := os.Rename(prepared, link); err != nil {
		return nil, errors.Join(err, os.Remove(prepared))
	}
	return func() error {
		if target, err := os.Readlink(link); err != nil || target != dir {
			return nil //nolint:nilerr // it belongs to another demo
		}
		return os.Remove(link)
	}, nil
}

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
