package kubebed

import "syscall"

// attributes moves the child to another process group, so that the terminal's Ctrl-C
// reaches only this process. The child dies with this process.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
