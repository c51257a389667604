//go:build !linux

package processnode

import (
	"errors"
	"os/exec"
	"syscall"
)

var errNoNamespaces = errors.New("process namespaces require Linux")

func tryNamespaces(string) error { return errNoNamespaces }

func namespaced(SandboxCommand) (*exec.Cmd, error) { return nil, errNoNamespaces }

// This platform has no parent-death signal: a process outlives a killed parent.
func plainAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func beginning(int) bool { return false }

func undecided(int, syscall.Signal) bool { return false }
