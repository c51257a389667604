package poller_test

import (
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/gardener/memory"
)

// The dependencies of a poller in a real process.
var (
	_ clusterworker.ObserverStore = (*pgstore.Observations)(nil)
	_ poller.Viewer               = (*gardener.Client)(nil)
	_ poller.Remover              = (*gardener.Client)(nil)
	_ poller.Viewer               = (*memory.Garden)(nil)
	_ poller.Remover              = (*memory.Garden)(nil)
)
