package realnode

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// files are the configuration templates of containerd, the kubelet and the network.
//
//go:embed files
var files embed.FS

// pauseSource is the program that holds every pod's namespaces. It is built when a node starts; a
// build constraint keeps it out of this package.
//
//go:embed pause.go
var pauseSource []byte

const pauseImage = "localhost/fleetloop/pause:1"

const (
	startBound = 2 * time.Minute // on a busy machine
	stopBound  = 10 * time.Second
	poll       = 50 * time.Millisecond
)

func startNode(ctx context.Context, bed *kubebed.Bed, o Options) (*Node, error) {
	cgroup, _ := settings.OSEnv(insideVariable)
	if cgroup == "" {
		return nil, errors.New("start real node: process has no separate namespaces: call Isolate first")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startBound, fmt.Errorf("node not ready within %s", startBound))
	defer cancel()
	n := &Node{dir: stateDir}
	err := n.startContainerdAndKubelet(ctx, bed, o, cgroup)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(err, cause)
		}
		return nil, errors.Join(fmt.Errorf("start real node: %w", err), errors.New(n.LogTails()), n.Stop())
	}
	return n, nil
}

func (n *Node) startContainerdAndKubelet(ctx context.Context, bed *kubebed.Bed, o Options, cgroup string) error {
	if err := errors.Join(n.writeFiles(cgroup), makeCgroups(cgroup)); err != nil {
		return err
	}
	pause, err := n.buildPauseImage(ctx)
	if err != nil {
		return err
	}
	if err := n.startProgram("containerd", "--config", n.pathInNodeFolder("containerd.toml")); err != nil {
		return err
	}
	if err := n.pollUntilNil(ctx, func() error { return n.runCtr(ctx, "version") }); err != nil {
		return err
	}
	for _, archive := range append([]string{pause}, o.Images...) {
		if err := n.runCtr(ctx, "-n", "k8s.io", "images", "import", archive); err != nil {
			return err
		}
	}
	kubeconfig, err := bed.WriteUserKubeconfig("system:node:"+Name, "system:nodes")
	if err != nil {
		return err
	}
	err = n.startProgram(filepath.Join(bed.Assets(), "kubelet"),
		"--config="+n.pathInNodeFolder("kubelet.yaml"), "--kubeconfig="+kubeconfig, "--root-dir="+n.pathInNodeFolder("kubelet"),
		"--cert-dir="+n.pathInNodeFolder("pki"), "--hostname-override="+Name, "--node-ip="+Address)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(bed.Config())
	if err != nil {
		return err
	}
	return n.pollUntilNil(ctx, func() error { return checkNodeReady(ctx, client) })
}

func (n *Node) pathInNodeFolder(name string) string { return filepath.Join(n.dir, name) }

// writeFiles renders the files for this node.
func (n *Node) writeFiles(cgroup string) error {
	values := map[string]any{
		"Dir": n.dir, "Cgroup": cgroup, "Address": Address, "Bridge": bridge, "Net": network, "First": firstPod, "Pause": pauseImage,
	}
	for name, to := range map[string]string{
		"containerd.toml": "containerd.toml", "kubelet.yaml": "kubelet.yaml",
		"fleetloop.conflist": "cni/fleetloop.conflist", "cni.sh": "cni/fleetloop",
	} {
		t, err := template.ParseFS(files, "files/"+name)
		if err != nil {
			return err
		}
		var text strings.Builder
		if err := t.Execute(&text, values); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(n.pathInNodeFolder(to)), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(n.pathInNodeFolder(to), []byte(text.String()), 0o700); err != nil { //nolint:gosec // one of them is a program
			return err
		}
	}
	if err := os.Symlink("fleetloop", n.pathInNodeFolder("cni/loopback")); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.MkdirAll(n.pathInNodeFolder("logs"), 0o700)
}

// buildPauseImage builds the image that holds pods' namespaces, and returns its archive.
func (n *Node) buildPauseImage(ctx context.Context) (archive string, err error) {
	source, program, archive := n.pathInNodeFolder("pause.go"), n.pathInNodeFolder("pause"), n.pathInNodeFolder("pause.tar")
	if err := os.WriteFile(source, pauseSource, 0o600); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, source) //nolint:gosec // our own
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	build.Dir = n.dir // outside of any module
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build pause program: %w: %s", err, out)
	}
	f, err := os.OpenFile(archive, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // our own
	if err != nil {
		return "", err
	}
	return archive, errors.Join(WriteImage(f, pauseImage, program), f.Close())
}

func (n *Node) runCtr(ctx context.Context, args ...string) error {
	args = append([]string{"--address", n.pathInNodeFolder("containerd.sock")}, args...)
	if out, err := exec.CommandContext(ctx, "ctr", args...).CombinedOutput(); err != nil { //nolint:gosec // our own
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func checkNodeReady(ctx context.Context, client kubernetes.Interface) error {
	node, err := client.CoreV1().Nodes().Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 || node.Status.Conditions[i].Status != corev1.ConditionTrue {
		return fmt.Errorf("node not ready: %+v", node.Status.Conditions)
	}
	return nil
}

// pollUntilNil waits until check returns no error, while all programs run.
func (n *Node) pollUntilNil(ctx context.Context, check func() error) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		for _, p := range n.programs {
			select {
			case <-p.done:
				return fmt.Errorf("%s exited", p.name)
			default:
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// A program is a running program of the node.
type program struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
}

// startProgram starts a program. It needs no parent-death signal: all others die with
// process 1.
func (n *Node) startProgram(path string, args ...string) error {
	p := &program{name: filepath.Base(path), cmd: exec.Command(path, args...), done: make(chan struct{})} //nolint:gosec,noctx // it outlives the start
	log, err := os.OpenFile(n.pathInNodeFolder(p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := errors.Join(p.cmd.Start(), log.Close()); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	n.programs = append(n.programs, p)
	go func() {
		_ = p.cmd.Wait() // its log shows how it ended
		close(p.done)
	}()
	return nil
}

// LogTails returns the end of the output of the node's programs.
func (n *Node) LogTails() string {
	const most = 6000
	var out strings.Builder
	for _, p := range n.programs {
		text, err := os.ReadFile(n.pathInNodeFolder(p.name + ".log"))
		if err != nil {
			fmt.Fprintf(&out, "---- %s: %v\n", p.name, err)
			continue
		}
		fmt.Fprintf(&out, "---- %s\n%s\n", p.name, text[max(0, len(text)-most):])
	}
	return out.String()
}

// Stop ends the kubelet and containerd. Containers end with the program that Isolate
// runs inside.
func (n *Node) Stop() error {
	var errs []error
	for _, p := range slices.Backward(n.programs) {
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("stop %s: %w", p.name, err))
			continue
		}
		t := time.NewTimer(stopBound)
		select {
		case <-p.done:
		case <-t.C:
			errs = append(errs, fmt.Errorf("stop %s: still running %s after SIGKILL", p.name, stopBound))
		}
		t.Stop()
	}
	return errors.Join(errs...)
}
