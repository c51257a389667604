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
)

// Options are the options of a node. All are optional.
type Options struct {
	// NodeName is the name of the Node; empty means "process".
	NodeName string

	// Labels are added to the usual labels of the Node, which they override.
	Labels map[string]string

	// Taints keep away pods that do not tolerate them. A pod with spec.nodeName runs
	// nevertheless unless the effect is NoExecute.
	Taints []corev1.Taint

	// Images are the programs for images: the program and its first arguments, to which
	// the container's args are added. A name without tag or digest matches all of them.
	// A container's command that names the same file in another folder, as /app for
	// bin/app, means the program.
	Images map[string][]string

	// Env is the environment of every container ("NAME=value"), which the pod can
	// override.
	Env []string

	// Dir is the folder of the pods. Empty means a temporary folder, which is removed
	// at the end. It serves one node at a time.
	Dir string

	// Capacity overrides the announced capacity of 16 CPUs, 64 GiB and 250 pods. It
	// does not limit containers.
	Capacity corev1.ResourceList

	// Heartbeat is the interval of renewals of Lease and Node. Zero means 10 s.
	Heartbeat time.Duration

	// RestartBackoff is the delay before the second restart of a container; it doubles
	// up to five minutes, and the first restart has no delay. Zero means the kubelet's
	// 10 s.
	RestartBackoff time.Duration

	// WithoutNamespaces runs plain processes even where the kernel allows namespaces.
	WithoutNamespaces bool

	// Log receives the actions of the node. Nil discards them.
	Log *slog.Logger
}

const (
	defaultName      = "process"
	defaultHeartbeat = 10 * time.Second
	defaultBackoff   = 10 * time.Second
	maxBackoff       = 5 * time.Minute
	backoffForgotten = 10 * time.Minute // a container that ran this long restarts without a delay

	// Address of the node and the pods, on which the API server reaches the logs.
	address = "127.0.0.1"
)

// A Node runs the pods that are bound to it.
type Node struct {
	o       Options
	dir     string
	client  kubernetes.Interface
	source  *InputSource
	sandbox *Sandbox
	logs    *logServer
	log     *slog.Logger

	mu    sync.Mutex
	ready error
}

var errNotRegistered = errors.New("node not registered yet")

// New returns a node for the API server of cfg, whose user must have the permissions of
// the node's requests, as administrators do. It starts nothing.
func New(cfg *rest.Config, o Options) (*Node, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // the server's own limits suffice
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("create process node: %w", err)
	}
	host, port, err := splitServerURL(cfg.Host)
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
		source: &InputSource{Client: client, Host: host, Port: port, CA: ca, Allocatable: o.Capacity, Env: o.Env},
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

func splitServerURL(serverURL string) (name, port string, err error) {
	u, err := url.Parse(serverURL)
	if err != nil || u.Host == "" {
		return "", "", fmt.Errorf("API server address %q is not a URL", serverURL)
	}
	if name, port, err = net.SplitHostPort(u.Host); err == nil {
		return name, port, nil
	}
	return u.Hostname(), "443", nil
}

// Run registers the node and runs its pods until ctx ends; then it kills every process.
// It returns early only if it cannot start.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	n, err := New(cfg, o)
	if err != nil {
		return err
	}
	return n.Run(ctx)
}

// Ready returns why the node accepts no pods at present, or nil.
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

// Run registers the node and runs its pods until ctx ends; then it kills every process.
// It returns early only if it cannot start. Call it once.
func (n *Node) Run(ctx context.Context) (err error) {
	f, err := lockFolderAndClearPods(n.o.Dir)
	if err != nil {
		return fmt.Errorf("run node %q: %w", n.o.NodeName, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n.dir = f.Path
	n.sandbox = PlainSandbox()
	if !n.o.WithoutNamespaces {
		if n.sandbox, err = DetectSandboxOrPlain(n.dir); err != nil {
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
