//go:build !linux

package pgserver

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// newProcessAttributes switches to the server's user and sets a new process group. This system has no
// parent-death signal: the next Start on the same folder stops an orphaned server.
func (h *serverHome) newProcessAttributes(syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: h.childCredential()}
}

// isPostmasterOf reports whether pid is a postmaster of the data folder. The pid in a stale file may
// belong to another program by now.
func isPostmasterOf(pid int, dataDir string) bool {
	out, err := exec.CommandContext(context.Background(), "ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), "-D "+dataDir)
}
