package kubebed

import "syscall"

// attributes leaves our process group, so that the terminal's Ctrl-C reaches
// only us, and ties the child's life to ours.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
