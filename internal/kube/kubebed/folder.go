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

const (
	logFolder  = "logs"
	tempPrefix = "fleetloop-kubebed-"
	// A temporary folder this old whose lock nobody holds was left by a
	// killed process.
	staleAfter = 10 * time.Minute
)

// A folder is the state of one bed, held by a lock for as long as we use it.
//
//	lock            held by the process that runs the bed
//	pki/            the authority, the server's certificate, the token keys
//	etcd/           the data
//	etcd.sock       where etcd listens
//	port            where the API server listened last
//	logs/           what the programs said, a file each
//	*.kubeconfig    for the users that were asked for
type folder struct {
	dir       string
	temporary bool
	lock      *os.File
}

// openFolder makes the folder and locks it. Empty is a temporary one.
func openFolder(dir string) (*folder, error) {
	f := &folder{dir: dir, temporary: dir == ""}
	var err error
	if f.temporary {
		sweep(os.TempDir())
		f.dir, err = os.MkdirTemp("", tempPrefix)
	} else if f.dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(f.dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	if f.lock, err = os.OpenFile(filepath.Join(f.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another process uses it")
		}
		return nil, errors.Join(fmt.Errorf("lock the folder %q: %w", f.dir, err), f.lock.Close())
	}
	// Others on this machine must not reach etcd by its socket, or read keys.
	err = errors.Join(os.Chmod(f.dir, 0o700), //nolint:gosec // a folder
		os.MkdirAll(f.path(logFolder), 0o700), os.MkdirAll(f.path("pki"), 0o700), os.RemoveAll(f.path(etcdSocket)))
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *folder) path(elem ...string) string {
	return filepath.Join(append([]string{f.dir}, elem...)...)
}

// close gives the folder back, and removes a temporary one.
func (f *folder) close() error {
	var err error
	if f.temporary {
		err = os.RemoveAll(f.dir)
	}
	return errors.Join(err, f.lock.Close()) // which gives the lock back
}

// sweep removes the folders of processes that were killed. What it cannot
// remove is somebody else's.
func sweep(tmp string) {
	entries, _ := os.ReadDir(tmp)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), tempPrefix) || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		dir := filepath.Join(tmp, e.Name())
		lock, err := os.Open(filepath.Join(dir, "lock")) //nolint:gosec // of the folders that we make
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
