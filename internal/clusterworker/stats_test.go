package clusterworker

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

// Stats are the current load of a worker and the totals of its results.
type Stats struct {
	// Slots is how many calls may run, InFlight how many run, and Unwritten how many
	// claims have no written result.
	Slots, InFlight, Unwritten int

	// Claimed rows end as Synced or Lost, for example; each try of a row counts. Released ones were
	// released at shutdown.
	Claimed, Synced, Lost, Released int

	// OutageSince is when the outage of Gardener began, zero without an outage.
	OutageSince time.Time
}

// CollectStats returns the current load and totals of the worker.
func (w *Worker) CollectStats() Stats {
	var rowsPerClaim dto.Metric
	if err := w.metrics.rowsPerClaim.Write(&rowsPerClaim); err != nil {
		panic(err)
	}
	counts := w.limiter.counts()
	return Stats{
		Slots: w.cfg.Slots, InFlight: counts.running, Unwritten: counts.unfinished,
		Claimed: int(rowsPerClaim.GetHistogram().GetSampleSum()), Synced: int(testutil.ToFloat64(w.metrics.synced)),
		Lost: int(testutil.ToFloat64(w.metrics.fenced)), Released: w.released, OutageSince: w.breaker.currentOutageOrZero().Since,
	}
}

// listFailingRequestKinds returns the kinds of requests that fail.
func (d *databaseHealth) listFailingRequestKinds() (kinds []string) {
	for kind := range d.failing {
		kinds = append(kinds, string(kind))
	}
	slices.Sort(kinds)
	return kinds
}
