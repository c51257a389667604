package clusterworker

import (
	"context"
	"time"
)

const (
	// outageTTL is how long a record of an outage lasts without renewal. The record of
	// a dead worker says nothing about Gardener.
	outageTTL = 30 * time.Second
	// outageRenewal is the interval of renewals.
	outageRenewal = outageTTL / 3
)

// An outageReporter records in the database that this worker gets no answer from Gardener. The API
// can then say why clusters wait.
type outageReporter struct {
	worker      *Worker
	changed     chan struct{} // capacity 1
	mayBeStored bool          // the database may have a record
}

// triggerOutageWrite makes the reporter read the breaker.
func (r *outageReporter) triggerOutageWrite() {
	select {
	case r.changed <- struct{}{}:
	default: // it will read the breaker anyway
	}
}

// writeOutageUntilDone keeps the record in line with the breaker until ctx ends. It retries
// failed writes.
func (r *outageReporter) writeOutageUntilDone(ctx context.Context) {
	if r.worker.deps.Outages == nil {
		return
	}
	ticker := time.NewTicker(outageRenewal)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		case <-ticker.C:
		}
		r.recordOrClearOutage(ctx)
	}
}

func (r *outageReporter) recordOrClearOutage(ctx context.Context) {
	w := r.worker
	outage := w.breaker.currentOutageOrZero()
	isOutage := !outage.Since.IsZero()
	if !isOutage && !r.mayBeStored {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, errStoreTimeout)
	defer cancel()
	err := w.deps.Outages.RecordOrClearOutage(ctx, w.deps.Owner, outage, outageTTL)
	w.db.recordRequestResult(ctx, toNoteOutage, err)
	r.mayBeStored = isOutage || err != nil
}
