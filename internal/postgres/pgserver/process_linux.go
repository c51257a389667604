package pgserver

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// newProcessAttributes switches to the server's user. It sets a new process group, so that Ctrl-C at the
// terminal reaches only this process, and ties the child's life to this process.
func (h *serverHome) newProcessAttributes(parentDeathSignal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: parentDeathSignal, Credential: h.childCredential()}
}

// isPostmasterOf reports whether pid is a postmaster of the data folder, which is every postmaster's
// working directory. The pid in a stale file may belong to another program by now.
func isPostmasterOf(pid int, dataDir string) bool {
	cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	if err != nil {
		return false
	}
	resolved, err := filepath.EvalSymlinks(dataDir)
	return err == nil && cwd == resolved
}
