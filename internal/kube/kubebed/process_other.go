//go:build !linux

package kubebed

import "syscall"

// attributes leaves our process group. There is no parent-death signal here.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
