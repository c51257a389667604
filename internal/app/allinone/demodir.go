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
	// Between the making of a folder and of its lock nobody holds it.
	demoAbandoned = time.Minute
)

// demoDir makes a folder for one demo in tmp, and tells how to remove it. The
// folders of demos that were killed go first: nobody else would miss them.
func demoDir(tmp string) (dir string, remove func() error, err error) {
	sweepDemos(tmp)
	if dir, err = os.MkdirTemp(tmp, demoPattern); err != nil {
		return "", nil, err
	}
	lock, err := os.OpenFile(demoLock(dir), os.O_RDWR|os.O_CREATE, 0o600)
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

// demoLock is the file that a demo holds a lock on for as long as it lives.
func demoLock(dir string) string { return filepath.Join(dir, "lock") }

// lockFile takes a lock without waiting. The kernel gives it back however the
// process ends.
func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// sweepDemos removes the folders of demos that ended without doing so. What it
// cannot remove stays.
func sweepDemos(tmp string) {
	dirs, _ := filepath.Glob(filepath.Join(tmp, demoPattern)) // its only error is a bad pattern
	for _, dir := range dirs {
		if !isOurs(dir) {
			continue
		}
		lock, err := os.Open(demoLock(dir))
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

// isOurs says whether dir is a folder of this user: where everybody may make
// one, another's content is not to be trusted.
func isOurs(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
