package processnode

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// insideName is the name of this program when it takes the first steps of another
// process. Its one argument is the file with the plan.
const insideName = "fleetloop-sandbox"

// A plan is the work inside the namespaces before the command runs.
type plan struct {
	Root     string // an empty folder for the process's view of the files
	Hostname string
	Mounts   []SandboxMount
	Dir      string
	Argv     []string // empty: only a try
	Env      []string
}

const (
	capSysChroot = 18
	capSysAdmin  = 21
)

func plainAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// newNamespacedCommand returns the command that starts c in namespaces.
func newNamespacedCommand(c SandboxCommand) (*exec.Cmd, error) {
	root := filepath.Join(c.Scratch, "root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	// The plan is in a file, because a pipe holds 64 KiB and every user can read an
	// argument.
	f, err := os.CreateTemp(c.Scratch, "plan-")
	if err != nil {
		return nil, err
	}
	p := plan{Root: root, Hostname: c.Hostname, Mounts: c.Mounts, Dir: c.Dir, Argv: c.Argv, Env: c.Env}
	if err := errors.Join(json.NewEncoder(f).Encode(p), f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	attributes, err := namespaceAttributes()
	if err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return &exec.Cmd{
		Path:        "/proc/self/exe", // exists even after the executable was removed
		Args:        []string{insideName, f.Name()},
		Env:         []string{},
		Dir:         "/",
		SysProcAttr: attributes,
	}, nil
}

// namespaceAttributes maps every permitted user and group id to itself, so that files
// look the same to the process.
func namespaceAttributes() (*syscall.SysProcAttr, error) {
	a := plainAttributes()
	a.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS
	if os.Geteuid() != 0 {
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		// A user other than root would lose its privileges in the namespace when the
		// program is executed.
		a.AmbientCaps = []uintptr{capSysAdmin, capSysChroot}
		return a, nil
	}
	var err error
	if a.UidMappings, err = readAsIdentityMap("/proc/self/uid_map"); err != nil {
		return nil, err
	}
	if a.GidMappings, err = readAsIdentityMap("/proc/self/gid_map"); err != nil {
		return nil, err
	}
	a.GidMappingsEnableSetgroups = true
	return a, nil
}

// readAsIdentityMap maps every id of the current namespace to itself.
func readAsIdentityMap(file string) ([]syscall.SysProcIDMap, error) {
	text, err := os.ReadFile(file) //nolint:gosec // one of two names
	if err != nil {
		return nil, err
	}
	var out []syscall.SysProcIDMap
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var inside, outside, size int
		if _, err := fmt.Sscan(lines.Text(), &inside, &outside, &size); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		out = append(out, syscall.SysProcIDMap{ContainerID: inside, HostID: inside, Size: size})
	}
	return out, nil
}

// tryNamespaces tries the operations that a process will need, and returns the error of
// a refused one.
func tryNamespaces(scratch string) error {
	source := filepath.Join(scratch, "file")
	if err := os.WriteFile(source, nil, 0o600); err != nil {
		return err
	}
	cmd, err := newNamespacedCommand(SandboxCommand{Scratch: scratch, Hostname: "sandbox", Mounts: []SandboxMount{
		{Source: source, Target: "/var/run/secrets/fleetloop/sandbox", ReadOnly: true},
		{Source: source, Target: "/dev/fleetloop-sandbox"},
	}})
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("process namespaces not available (%w) %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// isStartingUp reports whether a process still takes the first steps, or is just becoming
// its command: it then has no arguments.
func isStartingUp(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	name, _, _ := strings.Cut(string(text), "\x00")
	return name == insideName || name == ""
}

// hasDefaultAction reports whether a process neither handles nor ignores a signal. It returns
// false for a process that has ended or is not readable.
func hasDefaultAction(pid int, sig syscall.Signal) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "SigCgt" && name != "SigIgn" {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil || mask&(1<<(uint(sig)-1)) != 0 {
			return false
		}
	}
	return true
}
