//go:build !linux

package main

import (
	"errors"
	"syscall"
)

// newProcAttr keeps the Ctrl-C of a terminal from a child.
func newProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func mountLimited(string, int64) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }
