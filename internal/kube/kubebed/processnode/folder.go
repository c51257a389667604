package processnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	podsFolder = "pods"
	tempPrefix = "fleetloop-node-"

	// A temporary folder may be this old before anyone asks whether its node
	// still lives: the lock comes a moment after the folder.
	staleAfter = time.Minute
)

// A folder is where a node keeps its pods' files, locked by the node.
type folder struct {
	dir       string
	temporary bool
	lock      *os.File
}

// openFolder opens a folder; empty is a temporary one. What an earlier node left
// of its pods is removed: their processes died with it.
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
	if f.lock, err = lock(f.dir); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(filepath.Join(f.dir, podsFolder)); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// close gives the folder back, and removes a temporary one.
func (f *folder) close() error {
	var err error
	if f.temporary {
		err = os.RemoveAll(f.dir)
	}
	return errors.Join(err, f.lock.Close()) // which gives the lock back
}

// lock takes a folder for this process alone. The processes of pods do not
// inherit the lock.
func lock(dir string) (*os.File, error) {
	l, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // in the node's folder
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(l.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another process uses it")
		}
		return nil, errors.Join(fmt.Errorf("lock the folder %q: %w", dir, err), l.Close())
	}
	return l, nil
}

// sweep removes the temporary folders of nodes that were killed: secrets of
// their pods are in there. What it cannot remove is somebody else's.
func sweep(tmp string) {
	entries, _ := os.ReadDir(tmp)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), tempPrefix) || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		dir := filepath.Join(tmp, e.Name())
		if l, err := lock(dir); err == nil {
			_ = os.RemoveAll(dir)
			_ = l.Close()
		}
	}
}

func (n *Node) podDir(pod *corev1.Pod) string {
	return filepath.Join(n.dir, podsFolder, string(pod.UID))
}
