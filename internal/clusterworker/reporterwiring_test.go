package clusterworker_test

import (
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
)

// The dependencies of a reporter in a real process.
var (
	_ clusterworker.ReportStore    = (*pgstore.Store)(nil)
	_ clusterworker.ReportReceiver = (*fleetclient.Reporter)(nil)
	_ clusterworker.ShootObserver  = (*poller.Poller)(nil)
)
