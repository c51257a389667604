package pgserver

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// attributes drops to the server's user, leaves our process group, so that the
// terminal's Ctrl-C reaches only us, and ties the child's life to ours.
func (h *home) attributes(withParent syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: withParent, Credential: h.credential()}
}

// isPostmaster reports whether pid is a postmaster of the data folder: every
// postmaster works there. The pid in a stale file may be anyone's by now.
func isPostmaster(pid int, data string) bool {
	cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	if err != nil {
		return false
	}
	resolved, err := filepath.EvalSymlinks(data)
	return err == nil && cwd == resolved
}
