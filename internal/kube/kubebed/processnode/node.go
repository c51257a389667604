package processnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/internal/kube/kubebed/processnode/podinput"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed/processnode/sandbox"
)

// Options say what the node is like. All of them may be left out.
type Options struct {
	// NodeName is the Node's name; empty is "process".
	NodeName string

	// Labels are given to the Node, over the usual ones.
	Labels map[string]string

	// Taints keep pods away that do not tolerate them. One that is bound by its
	// spec.nodeName runs all the same unless the effect is NoExecute.
	Taints []corev1.Taint

	// Images are the programs that stand for images: the program and its first
	// arguments, to which the container's args are added. A name without tag or
	// digest stands for all of them. A container's command that names the
	// same file in some other folder, as /app does for bin/app, means the program.
	Images map[string][]string

	// Env is given to every container ("NAME=value"), under what its pod says.
	Env []string

	// Dir is where the pods' folders are. Empty is a temporary one, removed in
	// the end. It serves one node at a time.
	Dir string

	// Capacity is what the Node announces, over 16 CPUs, 64 GiB and 250 pods.
	// Nothing holds a container to it.
	Capacity corev1.ResourceList

	// Heartbeat is how often Lease and Node are looked after. Zero is 10 s.
	Heartbeat time.Duration

	// RestartBackoff is the time before a container is restarted for the second
	// time; it doubles up to five minutes, and the first restart does not
	// wait. Zero is the kubelet's 10 s.
	RestartBackoff time.Duration

	// WithoutNamespaces runs processes plainly even where the kernel would allow more.
	WithoutNamespaces bool

	// Log takes what the node does. Nil discards it.
	Log *slog.Logger
}

const (
	defaultName      = "process"
	defaultHeartbeat = 10 * time.Second
	defaultBackoff   = 10 * time.Second
	maxBackoff       = 5 * time.Minute
	backoffForgotten = 10 * time.Minute // a container that ran this long begins anew

	// The node's and the pods' address. The API server reaches the logs there.
	address = "127.0.0.1"
)

// A Node runs the pods that are bound to it.
type Node struct {
	o       Options
	dir     string
	client  kubernetes.Interface
	source  *podinput.Source
	sandbox *sandbox.Sandbox
	logs    *logServer
	log     *slog.Logger

	mu    sync.Mutex
	ready error
}

var errNotRegistered = errors.New("node not registered yet")

// New prepares a node for the API server of cfg, whose user must be allowed to
// do what this does: administrators are. Nothing is started.
func New(cfg *rest.Config, o Options) (*Node, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // the server's own limits are enough
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("create process node: %w", err)
	}
	host, port, err := apiServer(cfg.Host)
	if err != nil {
		return nil, fmt.Errorf("create process node: %w", err)
	}
	ca := cfg.CAData
	if len(ca) == 0 && cfg.CAFile != "" {
		if ca, err = os.ReadFile(cfg.CAFile); err != nil {
			return nil, fmt.Errorf("create process node: %w", err)
		}
	}
	o = withDefaults(o)
	return &Node{
		o: o, client: client, log: o.Log.With("node", o.NodeName),
		source: &podinput.Source{Client: client, Host: host, Port: port, CA: ca, Allocatable: o.Capacity, Env: o.Env},
		ready:  errNotRegistered,
	}, nil
}

func withDefaults(o Options) Options {
	if o.NodeName == "" {
		o.NodeName = defaultName
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = defaultHeartbeat
	}
	if o.RestartBackoff == 0 {
		o.RestartBackoff = defaultBackoff
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("16"),
		corev1.ResourceMemory:           resource.MustParse("64Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("64Gi"),
		corev1.ResourcePods:             resource.MustParse("250"),
	}
	maps.Copy(capacity, o.Capacity)
	o.Capacity = capacity
	return o
}

func apiServer(host string) (name, port string, err error) {
	u, err := url.Parse(host)
	if err != nil || u.Host == "" {
		return "", "", fmt.Errorf("API server address %q is not a URL", host)
	}
	if name, port, err = net.SplitHostPort(u.Host); err == nil {
		return name, port, nil
	}
	return u.Hostname(), "443", nil
}

// Run registers the node and runs its pods until ctx ends; then every process
// is killed. It returns early only when it cannot begin.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	n, err := New(cfg, o)
	if err != nil {
		return err
	}
	return n.Run(ctx)
}

// Ready reports why the node takes no pods just now, or nil.
func (n *Node) Ready() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ready
}

func (n *Node) setReady(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ready = err
}

// Run registers the node and runs its pods until ctx ends; then every process
// is killed. It returns early only when it cannot begin. Call it once.
func (n *Node) Run(ctx context.Context) (err error) {
	f, err := openFolder(n.o.Dir)
	if err != nil {
		return fmt.Errorf("run node %q: %w", n.o.NodeName, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n.dir = f.Path
	n.sandbox = sandbox.Plain()
	if !n.o.WithoutNamespaces {
		if n.sandbox, err = sandbox.Detect(n.dir); err != nil {
			return fmt.Errorf("run node %q: %w", n.o.NodeName, err)
		}
	}
	if reason := n.sandbox.Namespaces(); reason != nil {
		n.log.InfoContext(ctx, "volumes not mounted at their paths", "reason", reason.Error())
	}
	if n.logs, err = serveLogs(ctx); err != nil {
		return fmt.Errorf("run node %q: serve logs: %w", n.o.NodeName, err)
	}
	defer func() { err = errors.Join(err, n.logs.closeServer()) }()

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { n.keepAlive(ctx) })
	n.runPods(ctx)
	n.setReady(errors.New("node stopped"))
	return nil
}
