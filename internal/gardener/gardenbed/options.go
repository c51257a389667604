package gardenbed

import (
	"context"
	"log/slog"

	"github.com/fleetloop/fleetloop/internal/kube/kubebed"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed/programs"
)

// APIServer is the name of Gardener's API server, as its log file has it.
const APIServer = programs.GardenerAPIServer

// DefaultProject is the project that every garden has.
const DefaultProject = "fundament"

// NamespaceOf is the namespace of a project.
func NamespaceOf(project string) string { return "garden-" + project }

// Providers are the types that the garden has a cloud profile for; it, and the
// CredentialsBinding in each project, have the type's name.
func Providers() []string { return []string{"local", "metal", "aws"} }

// Options say what runs.
type Options struct {
	// Kube is the control plane that the garden is put behind. Its folder keeps
	// the state of the garden, too, and its log hears of what takes time.
	Kube kubebed.Options

	// On is a control plane that runs already, to be used in place of one of our
	// own. Stop leaves it running.
	On *kubebed.Bed

	// Assets is the folder with gardener-apiserver. Empty asks Assets for it.
	Assets string

	// Args are more arguments for gardener-apiserver. Where a flag takes one
	// value, they win.
	Args []string
}

// Assets gives the folder with gardener-apiserver, and fills it first where it
// is empty, which takes minutes: see package programs.
func Assets(ctx context.Context, log *slog.Logger) (dir string, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return programs.GardenFolder(ctx, log)
}
