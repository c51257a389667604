//go:build !linux

package processnode

import (
	"errors"
	"os/exec"
	"syscall"
)

var errNoNamespaces = errors.New("process namespaces require Linux")

func tryNamespaces(string) error { return errNoNamespaces }

func newNamespacedCommand(SandboxCommand) (*exec.Cmd, error) { return nil, errNoNamespaces }

// This platform has no parent-death signal: a process outlives a killed parent.
func plainAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func isStartingUp(int) bool { return false }

func hasDefaultAction(int, syscall.Signal) bool { return false }
