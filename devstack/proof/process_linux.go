package main

import "syscall"

// newProcAttr lets a child die with this process, and keeps the Ctrl-C of a terminal from it.
func newProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
