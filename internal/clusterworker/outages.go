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
	worker  *Worker
	store   OutageStore   // nil to record nothing
	changed chan struct{} // capacity 1
	noted   bool          // whether the database may have a record
}

// triggerOutageWrite makes the reporter read the breaker.
func (r *outageReporter) triggerOutageWrite() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// writeOutageUntilDone keeps the record in line with the breaker until ctx ends. It retries
// failed writes.
func (r *outageReporter) writeOutageUntilDone(ctx context.Context) {
	if r.store == nil {
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
	o := r.worker.breaker.currentOutageOrZero()
	open := !o.Since.IsZero()
	if !open && !r.noted {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, errStoreTimeout)
	defer cancel()
	err := r.store.RecordOrClearOutage(ctx, r.worker.owner, o, outageTTL)
	r.worker.db.recordRequestResult(ctx, toNoteOutage, err)
	r.noted = open || err != nil
}
