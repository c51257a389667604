package bridge_test

import (
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/bridge"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
)

// The dependencies of a bridge in a real process.
var (
	_ clusterworker.ReportStore = (*pgstore.Store)(nil)
	_ bridge.Fleet              = (*fleetclient.Reporter)(nil)
	_ bridge.Observer           = (*poller.Poller)(nil)
)
