package realnode

import (
	"context"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const (
	// Name is the name of the Node.
	Name = "real"

	// Address is the address of the API server and the kubelet, on the bridge, in the
	// namespaces of Isolate.
	Address = "10.88.7.1"

	bridge       = "fleetloop0"
	network      = "10.88.7"         // /24
	serviceRange = network + ".0/25" // its first address is Address
	firstPod     = 128
	port         = 443

	leaveVariable = "NODE"
)

// Options are the options of a node.
type Options struct {
	// Images are archives of the images for pods: the output of WriteImage, or an
	// OCI layout in a tar file.
	Images []string
}

// BedOptions returns the options of a bed for a real node: an API server on the bridge,
// the scheduler and the controllers of Jobs.
func BedOptions() kubebed.Options {
	return kubebed.Options{
		ListenAddress: Address, Port: port, ServiceRange: serviceRange,
		Controllers: kubebed.JobControllers(), Scheduler: true,
	}
}

// Off reports whether NODE=off disables the real node.
func Off() bool {
	value, _ := settings.OSEnv(leaveVariable)
	return value == "off"
}

// A Node is a running kubelet and containerd.
type Node struct {
	programs []*program
	dir      string
}

// Start starts a node for a bed made with BedOptions, in the namespaces of Isolate, and
// returns when it is Ready. There can be one node at a time.
func Start(ctx context.Context, bed *kubebed.Bed, o Options) (*Node, error) {
	return startNode(ctx, bed, o)
}
