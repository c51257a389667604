//go:build !linux

package main

import "syscall"

// newProcAttr keeps the Ctrl-C of a terminal from a child.
func newProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
