package processnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clientcmd "k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

var errNoProgram = errors.New("no program for the image and no command in the container: map the image to a program with the node's images")

// accountPath is the path of the service account files for in-cluster clients.
const accountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// A commandBuilder makes the commands of the containers of a pod, and the files that they need.
type commandBuilder struct{ worker *worker }

// prepareSandboxCommand returns the command of a container. An error may be temporary.
func (b commandBuilder) prepareSandboxCommand(ctx context.Context, c *container) (SandboxCommand, error) {
	env, err := b.worker.node.source.Environment(ctx, b.worker.pod, c.spec)
	if err != nil {
		return SandboxCommand{}, err
	}
	argv, err := b.worker.node.resolveCommandLine(c.spec, env)
	if err != nil {
		return SandboxCommand{}, err
	}
	work, err := b.makeWorkFolderAndMessageFile(c)
	if err != nil {
		return SandboxCommand{}, err
	}
	mounts, err := b.containerMounts(c, env)
	if err != nil {
		return SandboxCommand{}, err
	}
	setEnvDefault(env, "HOME", work)
	if !isHiddenByMount(mounts, b.worker.dir) {
		setEnvDefault(env, "TMPDIR", b.podPath("tmp"))
	}
	command := SandboxCommand{Argv: argv, Dir: c.spec.WorkingDir, Hostname: b.podHostname(), Mounts: mounts, Scratch: b.podPath("tmp")}
	if b.worker.node.sandbox.Namespaces() != nil {
		if err := b.rewritePathsAndAddKubeconfig(&command, env); err != nil {
			return SandboxCommand{}, err
		}
	}
	if command.Dir == "" {
		if command.Dir = work; isHiddenByMount(command.Mounts, work) && b.worker.node.sandbox.Namespaces() == nil {
			command.Dir = "/"
		}
	}
	command.Env = EnvironmentList(env)
	return command, nil
}

func setEnvDefault(env map[string]string, name, value string) {
	if _, set := env[name]; !set {
		env[name] = value
	}
}

func (b commandBuilder) podHostname() string {
	return cmp.Or(b.worker.pod.Spec.Hostname, b.worker.pod.Name)
}

// resolveCommandLine returns the command line: the container's command, or the program for its
// image, and the arguments.
func (n *Node) resolveCommandLine(c *corev1.Container, env map[string]string) ([]string, error) {
	program := n.findProgram(c.Image)
	argv := slices.Clone(program)
	if len(c.Command) > 0 {
		argv = nil
		for _, a := range c.Command {
			argv = append(argv, ExpandVariables(a, env))
		}
		if len(program) > 0 && filepath.Base(argv[0]) == filepath.Base(program[0]) {
			argv[0] = program[0]
		}
	}
	if len(argv) == 0 {
		return nil, fmt.Errorf("image %q: %w", c.Image, errNoProgram)
	}
	for _, a := range c.Args {
		argv = append(argv, ExpandVariables(a, env))
	}
	return argv, nil
}

// findProgram returns the program for an image, by its full name or by its name without
// tag and digest.
func (n *Node) findProgram(image string) []string {
	if p, ok := n.o.Images[image]; ok {
		return p
	}
	image, _, _ = strings.Cut(image, "@")
	if p, ok := n.o.Images[image]; ok {
		return p
	}
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		image = image[:i]
	}
	return n.o.Images[image]
}

// containerMounts returns the mounts of a container's volumes and its termination log,
// outer folders before the mounts in them.
func (b commandBuilder) containerMounts(c *container, env map[string]string) ([]SandboxMount, error) {
	var out []SandboxMount
	for i := range c.spec.VolumeMounts {
		m := &c.spec.VolumeMounts[i]
		source, err := b.worker.volumes.ResolveOrCreatePath(b.worker.pod, m, env)
		if err != nil {
			return nil, err
		}
		out = append(out, SandboxMount{Source: source, Target: filepath.Join("/", m.MountPath), ReadOnly: m.ReadOnly})
	}
	if path := c.spec.TerminationMessagePath; path != "" {
		out = append(out, SandboxMount{Source: b.messageFile(c), Target: filepath.Join("/", path)})
	}
	slices.SortStableFunc(out, func(a, b SandboxMount) int {
		return cmp.Compare(countPathElements(a.Target), countPathElements(b.Target))
	})
	if dir := c.spec.WorkingDir; dir != "" && !isCoveredByMount(out, dir) {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) { // container runtimes create it
			out = append(out, SandboxMount{Source: b.podPath("work", c.spec.Name), Target: filepath.Join("/", dir)})
		}
	}
	return out, nil
}

func countPathElements(path string) int { return strings.Count(path, "/") }

// isCoveredByMount reports whether a path is in one of the mounts.
func isCoveredByMount(mounts []SandboxMount, path string) bool {
	return slices.ContainsFunc(mounts, func(m SandboxMount) bool { return isWithin(path, m.Target) })
}

// isHiddenByMount reports whether a mount hides a folder of the machine.
func isHiddenByMount(mounts []SandboxMount, folder string) bool {
	return isCoveredByMount(mounts, folder)
}

func isWithin(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// rewritePathsAndAddKubeconfig replaces mount paths by the real paths of the volumes, where they occur
// in the command.
func (b commandBuilder) rewritePathsAndAddKubeconfig(c *SandboxCommand, env map[string]string) error {
	where := toPathMoves(c.Mounts)
	for i := range c.Argv {
		c.Argv[i] = RewritePaths(c.Argv[i], where)
	}
	for name, value := range env {
		env[name] = RewritePaths(value, where)
	}
	c.Dir = RewritePaths(c.Dir, where)
	for _, m := range c.Mounts {
		if m.Target != accountPath {
			continue
		}
		path := b.podPath("kubeconfig")
		if err := b.writeKubeconfig(path, m.Source); err != nil {
			return err
		}
		setEnvDefault(env, "KUBECONFIG", path)
	}
	return nil
}

// writeKubeconfig writes a kubeconfig for the API server with the token in accountDir.
func (b commandBuilder) writeKubeconfig(path, accountDir string) error {
	const name = "pod"
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{
		Server:               "https://" + net.JoinHostPort(b.worker.node.source.Host, b.worker.node.source.Port),
		CertificateAuthority: filepath.Join(accountDir, corev1.ServiceAccountRootCAKey),
	}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: filepath.Join(accountDir, corev1.ServiceAccountTokenKey)}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: b.worker.pod.Namespace}
	cfg.CurrentContext = name
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		return fmt.Errorf("write kubeconfig of the pod: %w", err)
	}
	return nil
}
