package bridge_test

import (
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/bridge"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/fleetclient"
)

// The dependencies of a bridge in a real process.
var (
	_ clusterworker.ReportStore = (*pgstore.Store)(nil)
	_ bridge.Fleet              = (*fleetclient.Client)(nil)
	_ bridge.Observer           = (*poller.Poller)(nil)
)
