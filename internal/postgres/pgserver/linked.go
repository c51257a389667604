package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// rootDataDir holds the data of servers whose user cannot reach the server's folder, for example in
// root's home. Each has a linked folder:
//
//	data        PGDATA; data.new until it is complete
//	link        the path of the link to data, at the last start
//	temporary   exists if the folder may be removed once the link is gone
//
// A missing link proves nothing about other folders: the home may have moved, its file system may not be
// mounted, or it may be in another container.
const (
	rootDataDir      = "/var/lib/fleetloop/postgres"
	linkedDirPrefix  = "of-"
	linkRecordFile   = "link"
	temporaryMark    = "temporary"
	unfinishedSuffix = ".new"
)

// dataFolderOrCreateLinked returns the data folder: in the home, or the target of its link. A home that the
// server's user cannot reach has such a link.
func (h *serverHome) dataFolderOrCreateLinked() (dataDir string, err error) {
	in := filepath.Join(h.dir, "data")
	if target, err := os.Readlink(in); err == nil {
		return h.followDataLink(in, target)
	}
	if h.user == nil {
		return in, nil
	}
	ok, err := h.user.canTraverse(h.dir)
	if err != nil || ok {
		return in, err
	}
	if _, err := os.Lstat(in); err == nil {
		return "", fmt.Errorf(
			"user %s, which runs postgres, cannot access the data: grant the user access to the parent folders, or use another folder",
			h.user.name,
		)
	}
	return h.createLinkedDataFolder(in)
}

// followDataLink returns the data folder that a link leads to, and records the link there. It fails if the folder
// is missing: an empty database would hide that, for example when a file system is not mounted.
func (h *serverHome) followDataLink(link, target string) (dataDir string, err error) {
	if !filepath.IsAbs(target) { // relative to the real folder of the link
		realDir, err := filepath.EvalSymlinks(h.dir)
		if err != nil {
			return "", err
		}
		target = filepath.Join(realDir, target)
	}
	_, err = os.Stat(target)
	if errors.Is(err, fs.ErrNotExist) {
		if _, unfinished := os.Stat(target + unfinishedSuffix); unfinished == nil {
			err = nil
		}
	}
	if err != nil {
		return "", fmt.Errorf(
			"the database is missing: the link %q leads nowhere: %w: mount or restore that folder, or delete the link to start an empty database",
			link, err,
		)
	}
	if h.user == nil {
		return link, nil
	}
	dir := filepath.Dir(target)
	if filepath.Dir(dir) != rootDataDir || !strings.HasPrefix(filepath.Base(dir), linkedDirPrefix) {
		return target, nil // linked by the user
	}
	return target, recordLink(dir, link, h.temporary)
}

// recordLink records the path of the link in a linked folder. Data that is not temporary now is kept from now on.
func recordLink(dir, link string, temporary bool) error {
	lock, err := lockLinkedFolders()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if !temporary {
		if err := os.Remove(filepath.Join(dir, temporaryMark)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, linkRecordFile), []byte(link), 0o600)
}

// lockLinkedFolders waits for the lock on the linked folders. It is held while a link or its record is missing.
func lockLinkedFolders() (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(rootDataDir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// createLinkedDataFolder creates a linked folder and the link to its data. It removes the temporary folders without
// a link.
func (h *serverHome) createLinkedDataFolder(link string) (dataDir string, err error) {
	if err := os.MkdirAll(rootDataDir, 0o711); err != nil { //nolint:gosec // passed through by the server's user
		return "", err
	}
	if ok, err := h.user.canTraverse(rootDataDir); err != nil {
		return "", err
	} else if !ok {
		return "", fmt.Errorf(
			"user %s, which runs postgres, cannot enter %q: run 'chmod o+x' on it and on its parent folders, or use another folder",
			h.user.name, rootDataDir,
		)
	}
	lock, err := lockLinkedFolders()
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := removeUnlinkedTemporaryFolders(rootDataDir); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(rootDataDir, linkedDirPrefix)
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	err = errors.Join(
		os.Chmod(dir, 0o711), //nolint:gosec // passed through by the server's user
		os.WriteFile(filepath.Join(dir, linkRecordFile), []byte(link), 0o600),
		os.Mkdir(data+unfinishedSuffix, 0o700),
	)
	if err == nil && h.temporary {
		err = os.WriteFile(filepath.Join(dir, temporaryMark), nil, 0o600)
	}
	if err == nil {
		err = os.Symlink(data, link)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir)) // without data so far
	}
	return data, nil
}

// removeUnlinkedTemporaryFolders removes the temporary folders under parentDir whose link is gone, unless a server
// still runs there.
func removeUnlinkedTemporaryFolders(parentDir string) error {
	entries, err := os.ReadDir(parentDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(parentDir, e.Name())
		if _, err := os.Lstat(filepath.Join(dir, temporaryMark)); err != nil {
			continue // a database to keep, or not a linked folder
		}
		link, err := os.ReadFile(filepath.Join(dir, linkRecordFile)) //nolint:gosec // written by recordLink
		if err != nil {
			continue
		}
		data := filepath.Join(dir, "data")
		if target, err := os.Readlink(string(link)); err == nil && target == data {
			continue
		}
		if pid, _ := readPIDFile(data); pid != 0 && isPostmasterOf(pid, data) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}
