package kubebed

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
)

// Names of the programs, as in Options.Args and the names of the log files.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

const (
	loopback            = "127.0.0.1"
	defaultServiceRange = "10.0.0.0/24" // no packet is ever routed there
)

// AllControllers returns the name of all default controllers of a cluster.
func AllControllers() []string { return []string{"*"} }

// JobControllers returns the controllers that Jobs and their Pods require. With them,
// Jobs run, are deleted after their time to live together with the objects that they
// own, and have a service account; an eviction respects the disruption budget; the
// roles view, edit and admin are not empty.
func JobControllers() []string {
	return []string{
		"job-controller", "ttl-after-finished-controller", "garbage-collector-controller", "disruption-controller",
		"serviceaccount-controller", "root-ca-certificate-publisher-controller", "namespace-controller",
		"clusterrole-aggregation-controller", "node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller",
	}
}

// Options are the options of a bed. The zero value is an API server with etcd.
type Options struct {
	// Dir is the folder of the state, which is reused if it exists. A folder serves one
	// bed at a time. Empty means a temporary folder, which Stop removes.
	Dir string

	// Assets is the folder with the programs. Empty means the result of Assets.
	Assets string

	// Controllers are the names of the controllers in kube-controller-manager. Without
	// any, no controller manager runs.
	Controllers []string

	// Scheduler is whether a scheduler binds Pods to Nodes.
	Scheduler bool

	// CRDs are files with CustomResourceDefinitions, or folders with such files. They
	// are served when Start returns.
	CRDs []string

	// ListenAddress is the address of the API server. Empty means 127.0.0.1. Other
	// addresses are for separate network namespaces.
	ListenAddress string

	// Port is the API server's port. Zero means a free one, which for a Dir with state
	// is the earlier one if that is free.
	Port int

	// ServiceRange is the CIDR of the addresses of Services; the first is that of the
	// Service "kubernetes". Empty means 10.0.0.0/24.
	ServiceRange string

	// Args are further arguments of programs, by name. They override flags with a
	// single value.
	Args map[string][]string

	// Log receives slow operations, mainly the first build of the programs. It may be
	// nil.
	Log *slog.Logger
}

func (o Options) validatedWithDefaults() (Options, error) {
	o.ListenAddress = cmp.Or(o.ListenAddress, loopback)
	o.ServiceRange = cmp.Or(o.ServiceRange, defaultServiceRange)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if ip := net.ParseIP(o.ListenAddress); ip == nil || ip.IsUnspecified() {
		return o, fmt.Errorf("listen address %q must be an IP address of this machine", o.ListenAddress)
	}
	if _, _, err := net.ParseCIDR(o.ServiceRange); err != nil {
		return o, fmt.Errorf("service range: %w", err)
	}
	return o, nil
}

// listensOnLoopback reports whether only this machine can reach the API server.
func (o Options) listensOnLoopback() bool { return net.ParseIP(o.ListenAddress).IsLoopback() }

// EnsureAssets returns the folder with etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, kubectl and kubelet. It first fills an empty folder, which can take
// minutes: see EnsureProgramFolder.
func EnsureAssets(ctx context.Context, log *slog.Logger) (dir string, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return EnsureProgramFolder(ctx, log)
}
