package gardenbed

import (
	"context"
	"log/slog"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
)

// APIServer is the name of Gardener's API server, as in the name of its log file.
const APIServer = kubebed.GardenerAPIServer

// DefaultProject is the project of every garden.
const DefaultProject = "fundament"

// NamespaceOf returns the namespace of a project.
func NamespaceOf(project string) string { return "garden-" + project }

// Providers returns the provider types that the garden has a cloud profile for. The
// profile, and the CredentialsBinding in each project, have the name of the type.
func Providers() []string { return []string{"local", "metal", "aws"} }

// Options are the options of a garden.
type Options struct {
	// Kube are the options of the garden's control plane. Its folder also keeps the
	// state of the garden, and its log receives slow operations.
	Kube kubebed.Options

	// On is a running control plane to use instead of a new one. Stop leaves it
	// running.
	On *kubebed.Bed

	// Assets is the folder with gardener-apiserver. Empty means the result of Assets.
	Assets string

	// Args are further arguments of gardener-apiserver. They override flags with a
	// single value.
	Args []string
}

// EnsureAssets returns the folder with gardener-apiserver. It first fills an empty folder,
// which takes minutes: see kubebed.EnsureGardenProgramFolder.
func EnsureAssets(ctx context.Context, log *slog.Logger) (dir string, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return kubebed.EnsureGardenProgramFolder(ctx, log)
}
