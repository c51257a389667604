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

// An outageReporter records in the database that this worker gets no answer from
// Gardener, so that the API can say why clusters wait.
type outageReporter struct {
	worker  *Worker
	store   OutageStore   // nil to record nothing
	changed chan struct{} // capacity 1
	noted   bool          // whether the database may have a record
}

// requestReport makes the reporter read the breaker.
func (r *outageReporter) requestReport() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// reportUntilDone keeps the record in line with the breaker until ctx ends. It retries
// failed writes.
func (r *outageReporter) reportUntilDone(ctx context.Context) {
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
		r.writeReport(ctx)
	}
}

func (r *outageReporter) writeReport(ctx context.Context) {
	o := r.worker.breaker.currentOutage()
	open := !o.Since.IsZero()
	if !open && !r.noted {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, errStoreTimeout)
	defer cancel()
	err := r.store.SetOutage(ctx, r.worker.owner, o, outageTTL)
	r.worker.db.noteRequest(ctx, toNoteOutage, err)
	r.noted = open || err != nil
}
