package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// rootDataDir holds the data of servers whose user cannot reach the server's folder, for example in
// root's home.
const rootDataDir = "/var/lib/fleetloop/postgres"

// An account is the unprivileged user that a server runs as.
type account struct {
	name     string
	uid, gid uint32
}

func findServerAccount() (*account, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("read the ids of user %q: %w", name, err)
		}
		return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("postgres cannot run as root, and there is no user postgres or nobody: create one of them")
}

// canTraverse reports whether the account may traverse every folder of an absolute path.
func (a *account) canTraverse(path string) (allowed bool, err error) {
	for {
		fi, err := os.Stat(path)
		if err != nil {
			return false, err
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			return false, fmt.Errorf("the owner of %q is unknown", path)
		}
		bit := fs.FileMode(0o001)
		switch {
		case st.Uid == a.uid:
			bit = 0o100
		case st.Gid == a.gid:
			bit = 0o010
		}
		if fi.Mode()&bit == 0 {
			return false, nil
		}
		parent := filepath.Dir(path)
		if parent == path {
			return true, nil
		}
		path = parent
	}
}

// childCredential returns the credential of child processes; nil means that of this process.
func (h *serverHome) childCredential() *syscall.Credential {
	if h.user == nil {
		return nil
	}
	return &syscall.Credential{Uid: h.user.uid, Gid: h.user.gid}
}

// chownToServerUser makes the server's user the owner of a file.
func (h *serverHome) chownToServerUser(path string) error {
	if h.user == nil {
		return nil
	}
	if err := os.Chown(path, int(h.user.uid), int(h.user.gid)); err != nil {
		return fmt.Errorf("change the owner of %q to %s: %w", path, h.user.name, err)
	}
	return nil
}

// dataFolderOrCreateLinked returns the data folder: in the home, or the target of its link. A home that the
// server's user cannot reach has such a link.
func (h *serverHome) dataFolderOrCreateLinked() (dataDir string, err error) {
	in := filepath.Join(h.dir, "data")
	if h.user == nil {
		return in, nil
	}
	if target, err := os.Readlink(in); err == nil {
		// If the folder above the data was deleted, start with a new one.
		if _, err := os.Stat(filepath.Dir(target)); err == nil {
			return target, nil
		}
		if err := os.Remove(in); err != nil {
			return "", err
		}
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
	return h.user.createLinkedDataFolder(in)
}

// createLinkedDataFolder creates a data folder under rootDataDir and links to it. It removes the folders without
// a link.
func (a *account) createLinkedDataFolder(link string) (dataDir string, err error) {
	if err := os.MkdirAll(rootDataDir, 0o711); err != nil { //nolint:gosec // passed through by the server's user
		return "", err
	}
	if ok, err := a.canTraverse(rootDataDir); err != nil {
		return "", err
	} else if !ok {
		return "", fmt.Errorf("user %s, which runs postgres, cannot enter %q: run 'chmod o+x' on it and on its parent folders, or use another folder", a.name, rootDataDir)
	}
	// Held while there is a folder without a link.
	lock, err := os.OpenFile(filepath.Join(rootDataDir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if err := removeUnlinkedFolders(rootDataDir); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(rootDataDir, "of-")
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	return data, errors.Join(
		os.Chmod(dir, 0o711), //nolint:gosec // passed through by the server's user
		os.WriteFile(filepath.Join(dir, "link"), []byte(link), 0o600),
		os.Symlink(data, link),
	)
}

// removeUnlinkedFolders removes the folders under base whose link is gone, unless a server still runs there.
func removeUnlinkedFolders(parentDir string) error {
	entries, err := os.ReadDir(parentDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(parentDir, e.Name())
		link, err := os.ReadFile(filepath.Join(dir, "link")) //nolint:gosec // written by elsewhere
		if err != nil {
			continue // not created by elsewhere
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
