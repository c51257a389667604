// Package gardentest is the suite for every garden: the one in memory, and the client
// of a real Gardener.
//
// It requires that no change is lost and no Shoot of others is touched. A Shoot has the
// state that was requested last, even if other clients write to it. A Shoot of another owner
// stays as it is. A watch ends up with all existing Shoots.
package gardentest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A Writer is the part of a garden that a cluster-worker uses.
type Writer interface {
	ApplyShoot(ctx context.Context, manifest shoot.Manifest, seenBefore bool) (shoot.Applied, error)
	DeleteShoot(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error)
	DryRunShoot(ctx context.Context, manifest shoot.Manifest) error
	Probe(ctx context.Context) error
}

// A Reader is the part of a garden that observes Shoots.
type Reader interface {
	GetShoot(ctx context.Context, name string) (shoot.Observed, error)
	ListShoots(ctx context.Context) (shoot.List, error)
	WatchShoots(ctx context.Context, resourceVersion string, handle func(shoot.Event) error) error
	FindProjectName(ctx context.Context) (projectName string, err error)
}

// A Garden is a Writer and a Reader.
type Garden interface {
	Writer
	Reader
}

// A Bed is a garden for one test, with the actions of other clients. It has a cloud
// profile "local" with the region "local", the machine type "local" with the image
// "local" in 1.0.0 and 1.1.0, and Kubernetes 1.34.1 to 1.34.3. Without requests, only
// deletions make progress.
type Bed struct {
	Garden Garden
	// Project is the name of the project, of at most nine characters.
	Project string

	// Put creates a Shoot as another client.
	Put func(t *testing.T, m shoot.Manifest)
	// Edit changes the spec of a Shoot as another client.
	Edit func(t *testing.T, name string, edit func(*shoot.Spec))
	// Spec returns the spec of a Shoot in the garden.
	Spec func(t *testing.T, name string) shoot.Spec
	// Linger blocks the end of a Shoot's deletion, or unblocks it.
	Linger func(t *testing.T, name string, on bool)
	// Forgotten returns a resource version whose later changes the garden no longer
	// has.
	Forgotten func(t *testing.T) string
}

// Installation is the installation whose Shoots a bed's garden lists.
const Installation = "4be0643f-1d98-473b-97cd-ca98a65347dd"

// patience limits every wait of the suite, on a busy machine as well.
const patience = 60 * time.Second

// NewManifest returns a Shoot of the suite with one pool, at a generation.
func NewManifest(name string, generation int64) shoot.Manifest {
	return shoot.Manifest{
		APIVersion: shoot.APIVersion, Kind: shoot.Kind,
		Metadata: shoot.Metadata{
			Name:   name,
			Labels: map[string]string{shoot.LabelCluster: clusterIDOf(name), shoot.LabelInstallation: Installation},
			Annotations: map[string]string{
				shoot.AnnotationGeneration: strconv.FormatInt(generation, 10),
				shoot.AnnotationName:       "the cluster of " + name,
			},
		},
		Spec: shoot.Spec{
			CloudProfile: shoot.CloudProfile{Name: "local"}, CredentialsBindingName: "local", Region: "local",
			Kubernetes: shoot.Kubernetes{Version: "1.34.2"},
			Networking: &shoot.Networking{Type: "calico", Nodes: "10.0.0.0/16"},
			Provider:   shoot.Provider{Type: "local", Workers: []shoot.Worker{NewWorker("default")}},
		},
	}
}

// NewWorker returns a pool of the suite.
func NewWorker(name string) shoot.Worker {
	return shoot.Worker{Name: name, Machine: shoot.Machine{Type: "local"}, Minimum: 1, Maximum: 3}
}

// newShootRef returns the reference to the Shoot of Manifest.
func newShootRef(name string) shoot.Ref {
	return shoot.Ref{Name: name, Cluster: clusterIDOf(name), Installation: Installation}
}

func clusterIDOf(name string) string { return "cluster-of-" + name }
