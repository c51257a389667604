package processnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// The program that imports this package also takes the first steps of a sandboxed
// process, as no other program is certain to exist. Only the name that Start passes
// leads here.
func init() { //nolint:gochecknoinits // before main, which knows nothing of it
	if os.Args[0] != insideName || len(os.Args) != 2 {
		return
	}
	runtime.LockOSThread() // privileges belong to threads
	if err := setUpSandboxAndExec(os.Args[1]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		syscall.Exit(ExitUnstartable) // skips the end of the importing program
	}
	syscall.Exit(0) // empty plan: only a try
}

// setUpSandboxAndExec carries out a plan and becomes its command.
func setUpSandboxAndExec(planFile string) error {
	text, err := os.ReadFile(planFile) //nolint:gosec // written by Start
	if err != nil {
		return fmt.Errorf("read process plan: %w", err)
	}
	if err := os.Remove(planFile); err != nil { //nolint:gosec // written by Start
		return fmt.Errorf("remove process plan: %w", err)
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("read process plan: %w", err)
	}
	program := -1
	if len(p.Argv) > 0 {
		// The mounts may hide the program, so it is opened before.
		if path, err := lookPath(p.Argv[0], p.Env); err == nil {
			if program, err = syscall.Open(path, syscall.O_RDONLY, 0); err != nil {
				program = -1 // not readable, but possibly executable
			}
		}
	}
	if p.Hostname != "" {
		if err := syscall.Sethostname([]byte(p.Hostname)); err != nil {
			return fmt.Errorf("set host name: %w", err)
		}
	}
	if err := buildSandboxRoot(p.Root, p.Mounts); err != nil {
		return err
	}
	if err := syscall.Chroot(p.Root); err != nil {
		return fmt.Errorf("enter mount namespace: %w", err)
	}
	if p.Dir == "" {
		p.Dir = "/"
	}
	if err := os.Chdir(p.Dir); err != nil {
		return fmt.Errorf("change to working directory: %w", err)
	}
	if len(p.Argv) == 0 {
		return nil
	}
	return clearAmbientCapsAndExec(p.Argv, p.Env, program)
}

// clearAmbientCapsAndExec replaces this process by a program, without its privileges in the
// namespace. The descriptor is for a program that the mounts have hidden.
func clearAmbientCapsAndExec(argv, env []string, fallbackFD int) error {
	const prCapAmbient, prCapAmbientClearAll = 47, 4
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, prCapAmbientClearAll, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("drop privileges: %w", errno)
	}
	path, err := lookPath(argv[0], env)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		if fallbackFD < 0 {
			return fmt.Errorf("start %q: %w", argv[0], err)
		}
		path = fmt.Sprintf("/proc/self/fd/%d", fallbackFD)
	} else {
		if err != nil {
			return fmt.Errorf("start %q: %w", argv[0], err)
		}
		if fallbackFD >= 0 {
			syscall.CloseOnExec(fallbackFD)
		}
	}
	if err := syscall.Exec(path, argv, env); err != nil { //nolint:gosec // the caller's command
		return fmt.Errorf("start %q: %w", argv[0], err)
	}
	return nil
}
