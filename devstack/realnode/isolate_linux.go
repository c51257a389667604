package realnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// insideVariable passes the name of the node's cgroups to the program inside.
const insideVariable = "FLEETLOOP_REALNODE_CGROUP"

// stateDir is in memory that disappears with the namespaces.
const stateDir = "/run/fleetloop-node"

// Isolate runs this program again, with the same arguments, in new namespaces, and
// returns its exit code when it has ended. In that program it prepares the namespaces
// and reports inside. Call it first, before any other process is started.
func Isolate(ctx context.Context, log *slog.Logger) (inside bool, exitCode int, err error) {
	if name, _ := settings.OSEnv(insideVariable); name != "" {
		return true, 0, prepareNamespaces(ctx)
	}
	if err := CheckRequirements(); err != nil {
		return false, 0, err
	}
	assets, err := kubebed.EnsureAssets(ctx, log)
	if err != nil {
		return false, 0, err
	}
	exitCode, err = rerunInNamespaces(ctx, assets)
	return false, exitCode, err
}

// CheckRequirements returns an error with the requirements of a real node that this machine
// lacks.
func CheckRequirements() error {
	if os.Geteuid() != 0 {
		return errors.New("a real node requires root")
	}
	var missing []string
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip", "sh"} {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("a real node requires %s: install containerd, runc and iproute2", strings.Join(missing, ", "))
	}
	return nil
}

func rerunInNamespaces(ctx context.Context, assets string) (exitCode int, err error) {
	cgroup := fmt.Sprint(cgroupPrefix, os.Getpid())
	again := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...) //nolint:gosec // this program
	again.Args[0] = os.Args[0]
	again.Env = append(os.Environ(), insideVariable+"="+cgroup, kubebed.AssetsVariable+"="+assets)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL, // kills process 1 and so all others
	}
	removeOwnAndStaleCgroups() // those of killed programs
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = again.Run()
	removeOwnAndStaleCgroups()
	if left := listCgroupFolders(cgroup); err == nil && len(left) > 0 {
		return 0, fmt.Errorf("stop real node: cgroups not removed: %s", strings.Join(left, ", "))
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() >= 0 {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("run in namespaces: %w", err)
	}
	return 0, nil
}

// prepareNamespaces creates the mounts and the network of the node and the bed in the
// namespaces.
func prepareNamespaces(ctx context.Context) error {
	steps := []struct {
		what           string
		source, target string
		kind, data     string
		flags          uintptr
	}{
		{"make mounts private", "", "/", "", "", syscall.MS_REC | syscall.MS_PRIVATE},
		{"mount /proc", "proc", "/proc", "proc", "", 0},
		// Paths that are built into kubelet, containerd and their helpers.
		{"hide /run", "tmpfs", "/run", "tmpfs", "mode=0755", 0},
		{"hide /var/log", "tmpfs", "/var/log", "tmpfs", "mode=0755", 0},
	}
	for _, s := range steps {
		if err := syscall.Mount(s.source, s.target, s.kind, s.flags, s.data); err != nil {
			return fmt.Errorf("prepare namespaces: %s: %w", s.what, err)
		}
	}
	upper, work := filepath.Join(stateDir, "var-lib"), filepath.Join(stateDir, "var-lib-work")
	if err := errors.Join(os.MkdirAll(upper, 0o700), os.MkdirAll(work, 0o700)); err != nil {
		return fmt.Errorf("prepare namespaces: %w", err)
	}
	if err := syscall.Mount("overlay", "/var/lib", "overlay", 0, "lowerdir=/var/lib,upperdir="+upper+",workdir="+work); err != nil {
		return fmt.Errorf("prepare namespaces: mount overlay on /var/lib: %w", err)
	}
	for _, args := range []string{
		"link set lo up",
		"link add " + bridge + " type bridge",
		"addr add " + Address + "/24 dev " + bridge,
		"link set " + bridge + " up",
	} {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput(); err != nil { //nolint:gosec // as it stands above
			return fmt.Errorf("prepare namespaces: ip %s: %w: %s", args, err, out)
		}
	}
	return nil
}
