// Package gardentest is the suite that every garden passes: the one in memory,
// and the client of a real Gardener.
//
// What it asks for throughout is that nothing is lost and nothing of others is
// touched: a Shoot is as it was asked for last, whoever else writes to it; one
// that is not ours stays as it is; and whoever watches ends up knowing what there
// is.
package gardentest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A Writer is what a cluster-worker needs of a garden.
type Writer interface {
	ApplyShoot(ctx context.Context, m shoot.Manifest, seen bool) (shoot.Applied, error)
	DeleteShoot(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error)
	PreflightShoot(ctx context.Context, m shoot.Manifest) error
	Probe(ctx context.Context) error
}

// A Reader is what observes the Shoots.
type Reader interface {
	GetShoot(ctx context.Context, name string) (shoot.Observed, error)
	ListShoots(ctx context.Context) (shoot.List, error)
	WatchShoots(ctx context.Context, resourceVersion string, handle func(shoot.Event) error) error
	Project(ctx context.Context) (string, error)
}

// A Garden is both.
type Garden interface {
	Writer
	Reader
}

// A Bed is a garden for one test, with what others may do to it. It has a cloud
// profile "local" with the region "local", the machine type "local" with the image
// "local" in 1.0.0 and 1.1.0, and Kubernetes 1.34.1 to 1.34.3. Nothing happens in
// it by itself but deletions.
type Bed struct {
	Garden Garden
	// Project is the project's name, of at most nine characters.
	Project string

	// Put makes a Shoot as somebody else does.
	Put func(t *testing.T, m shoot.Manifest)
	// Edit changes the spec of a Shoot as somebody else does.
	Edit func(t *testing.T, name string, edit func(*shoot.Spec))
	// Spec is the spec of a Shoot as the garden has it.
	Spec func(t *testing.T, name string) shoot.Spec
	// Linger keeps a Shoot from going when it is deleted, or lets it go.
	Linger func(t *testing.T, name string, on bool)
	// Forgotten is a resource version that the garden knows nothing after.
	Forgotten func(t *testing.T) string
}

// Installation is whose Shoots a bed's garden lists.
const Installation = "4be0643f-1d98-473b-97cd-ca98a65347dd"

// patience is what the suite waits for at most. The machine may be busy.
const patience = 60 * time.Second

// Manifest is a Shoot of the suite, with one pool, as it is at a generation.
func Manifest(name string, generation int64) shoot.Manifest {
	return shoot.Manifest{
		APIVersion: shoot.APIVersion, Kind: shoot.Kind,
		Metadata: shoot.Metadata{
			Name:   name,
			Labels: map[string]string{shoot.LabelCluster: clusterID(name), shoot.LabelInstallation: Installation},
			Annotations: map[string]string{
				shoot.AnnotationGeneration: strconv.FormatInt(generation, 10),
				shoot.AnnotationName:       "the cluster of " + name,
			},
		},
		Spec: shoot.Spec{
			CloudProfile: shoot.CloudProfile{Name: "local"}, CredentialsBindingName: "local", Region: "local",
			Kubernetes: shoot.Kubernetes{Version: "1.34.2"},
			Networking: &shoot.Networking{Type: "calico", Nodes: "10.0.0.0/16"},
			Provider:   shoot.Provider{Type: "local", Workers: []shoot.Worker{Worker("default")}},
		},
	}
}

// Worker is a pool of the suite.
func Worker(name string) shoot.Worker {
	return shoot.Worker{Name: name, Machine: shoot.Machine{Type: "local"}, Minimum: 1, Maximum: 3}
}

// shootRef is the Shoot that a Manifest is.
func shootRef(name string) shoot.Ref {
	return shoot.Ref{Name: name, Cluster: clusterID(name), Installation: Installation}
}

func clusterID(name string) string { return "cluster-of-" + name }
