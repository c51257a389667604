//go:build !linux

package pgserver

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// attributes drops to the server's user and leaves our process group. There
// is no parent-death signal here: what is left behind is stopped by the next
// Start on the same folder.
func (h *home) attributes(syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: h.credential()}
}

// isPostmaster reports whether pid is a postmaster of the data folder. The
// pid in a stale file may be anyone's by now.
func isPostmaster(pid int, data string) bool {
	out, err := exec.CommandContext(context.Background(), "ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), "-D "+data)
}
