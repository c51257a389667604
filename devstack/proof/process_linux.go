package main

import (
	"fmt"
	"syscall"
)

// newProcAttr lets a child die with this process, and keeps the Ctrl-C of a terminal from it.
func newProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// mountLimited mounts a file system in memory on a folder. It needs root.
func mountLimited(dir string, size int64) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, fmt.Sprintf("size=%d,mode=711", size))
}

// unmount removes a mount, also while it is in use.
func unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }
