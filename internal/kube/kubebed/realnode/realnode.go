package realnode

import (
	"context"

	"github.com/fleetloop/fleetloop/internal/kube/kubebed"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const (
	// Name is the Node's.
	Name = "real"

	// Address is where the API server and the kubelet listen, on the bridge, in
	// the namespaces of Isolate.
	Address = "10.88.7.1"

	bridge       = "fleetloop0"
	network      = "10.88.7"         // /24
	serviceRange = network + ".0/25" // its first address is Address
	firstPod     = 128
	port         = 443

	leaveVariable = "NODE"
)

// Options say what the node is given.
type Options struct {
	// Images are archives of the images that pods can have: what package image
	// writes, or an OCI layout in a tar file.
	Images []string
}

// BedOptions are what a bed needs for a real node: an API server on the bridge,
// the scheduler and the controllers of Jobs.
func BedOptions() kubebed.Options {
	return kubebed.Options{
		ListenAddress: Address, Port: port, ServiceRange: serviceRange,
		Controllers: kubebed.JobControllers(), Scheduler: true,
	}
}

// Off reports whether whoever runs the tests has said that there shall be no
// real node, by NODE=off.
func Off() bool {
	value, _ := settings.OSEnv(leaveVariable)
	return value == "off"
}

// A Node is a kubelet and a containerd that run.
type Node struct {
	programs []*program
	dir      string
}

// Start starts a node for a bed made with BedOptions, in the namespaces of
// Isolate, and returns when it is Ready. One node at a time.
func Start(ctx context.Context, bed *kubebed.Bed, o Options) (*Node, error) {
	return startNode(ctx, bed, o)
}
