//go:build !linux

package kubebed

import "syscall"

// attributes moves the child to another process group. This platform has no
// parent-death signal.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
