package gardenbed

import (
	"context"
	"log/slog"

	"github.com/fleetloop/fleetloop/internal/kube/kubebed/programs"
)

// Assets gives the folder with gardener-apiserver, and fills it first where it
// is empty, which takes minutes: see package programs.
func Assets(ctx context.Context, log *slog.Logger) (dir string, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return programs.GardenFolder(ctx, log)
}
