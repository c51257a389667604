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
