package clusterworkerapp

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/bridge"
	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/gardener/memory"
)

// Describe registers the worker's metrics and runs nothing: for the reference of
// metrics.
func Describe(reg prometheus.Registerer) error {
	const name, longest = "reference", 21
	store, garden := pgstore.New(nil), memory.New(memory.Options{})
	maker, err := manifest.New(manifest.Config{}, name, memory.DefaultProject, longest)
	if err != nil {
		return err
	}
	_, workerErr := clusterworker.New(clusterworker.Config{}, clusterworker.Deps{
		Store: store, Garden: garden, Maker: maker, Installation: store.Installation, Owner: name, Tallier: store, Registerer: reg,
	})
	observer, pollerErr := poller.New(poller.Config{Owner: name}, poller.Deps{Store: store, Viewer: garden, Registerer: reg})
	if err := errors.Join(workerErr, pollerErr); err != nil {
		return err
	}
	_, err = bridge.New(bridge.Config{}, bridge.Deps{Store: store, Fleet: nobody{}, Observer: observer, Registerer: reg})
	return err
}

// nobody takes reports.
type nobody struct{}

// Report takes none.
func (nobody) Report(context.Context, string, string, v1.Report) (bool, error) { return false, nil }
