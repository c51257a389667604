package clusterworker

import (
	"context"
	"time"
)

const (
	// outageTTL is for how long a note of an outage holds that is not renewed: that
	// of a worker which died says nothing of Gardener.
	outageTTL = 30 * time.Second
	// outageRenewal is how often a note is renewed.
	outageRenewal = outageTTL / 3
)

// An outageReporter keeps in the database that this worker gets no answer from
// Gardener, so that the API can say why clusters wait.
type outageReporter struct {
	worker  *Worker
	store   OutageStore   // nil if nobody is told
	changed chan struct{} // of capacity 1
	noted   bool          // whether the database may have a note
}

// requestReport has the reporter look at the breaker.
func (r *outageReporter) requestReport() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// reportUntilDone keeps the note as the breaker is, until ctx ends. What fails is tried again.
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
