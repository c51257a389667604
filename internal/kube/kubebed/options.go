package kubebed

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/fleetloop/fleetloop/internal/kube/kubebed/programs"
)

// The names of programs, as Options.Args and the log files have them.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

const (
	loopback            = "127.0.0.1"
	defaultServiceRange = "10.0.0.0/24" // no packet ever goes there
)

// AllControllers are all controllers that a cluster has by default.
func AllControllers() []string { return []string{"*"} }

// JobControllers are those that Jobs and their Pods live with: Jobs run, end
// after their time to live, take what they own with them, and have a service
// account to run as; an eviction asks the disruption budget; the roles view,
// edit and admin are not empty.
func JobControllers() []string {
	return []string{
		"job-controller", "ttl-after-finished-controller", "garbage-collector-controller", "disruption-controller",
		"serviceaccount-controller", "root-ca-certificate-publisher-controller", "namespace-controller",
		"clusterrole-aggregation-controller", "node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller",
	}
}

// Options say what runs. The zero value is an API server with etcd.
type Options struct {
	// Dir keeps the state, and is used again if it has some. A folder serves
	// one bed at a time. Empty is a temporary folder, which Stop removes.
	Dir string

	// Assets is the folder with the programs. Empty asks Assets for it.
	Assets string

	// Controllers are the controllers that kube-controller-manager runs, by
	// their names. None is no controller manager.
	Controllers []string

	// Scheduler is whether Pods are bound to Nodes.
	Scheduler bool

	// CRDs are files of CustomResourceDefinitions, or folders with such files.
	// They are served when Start returns.
	CRDs []string

	// ListenAddress is where the API server listens. Empty is 127.0.0.1. Any
	// other is for network namespaces of one's own.
	ListenAddress string

	// Port is the API server's port. Zero takes a free one, and for a Dir with
	// state the one that it had if that is free.
	Port int

	// ServiceRange is where Services have their addresses, as a CIDR; the first
	// is that of the Service "kubernetes". Empty is 10.0.0.0/24.
	ServiceRange string

	// Args are more arguments for programs, by their names. Where a flag takes
	// one value, they win.
	Args map[string][]string

	// Log hears of what takes time, above all the first build of the programs.
	// Nil is silence.
	Log *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
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

// onLoopback is whether nothing but this machine can reach the API server.
func (o Options) onLoopback() bool { return net.ParseIP(o.ListenAddress).IsLoopback() }

// Assets gives the folder with etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, kubectl and kubelet, and fills it first where it is empty,
// which can take minutes: see package programs.
func Assets(ctx context.Context, log *slog.Logger) (dir string, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return programs.Folder(ctx, log)
}
