package bridge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// An outcome is what became of one report.
type outcome struct {
	result result
	// next is when to report on the row again; 0 leaves it due.
	next time.Duration
	// away is why the fleet API took nothing, if that may be so for all.
	away error
}

// reportDueRows makes the reports that are due. more is whether others may be, and
// answered whether the fleet API answered. Its error is one of the database, or
// of a fleet API that takes no report at all.
func (b *Bridge) reportDueRows(ctx context.Context) (more, answered bool, err error) {
	now := time.Now()
	rows, err := b.listDue(ctx)
	if err != nil || len(rows) == 0 {
		return false, false, err
	}
	outcomes := make([]outcome, len(rows))
	var wg sync.WaitGroup
	slots := make(chan struct{}, b.cfg.InFlight)
	for i := range rows {
		slots <- struct{}{}
		if ctx.Err() != nil || !b.deps.Observer.Leads() {
			<-slots
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			outcomes[i] = b.reportRow(ctx, rows[i], now)
			b.metrics.countResult(outcomes[i].result)
		})
	}
	wg.Wait()

	var away error
	var notes []clusterworker.Reported
	for i, o := range outcomes {
		if o.next > 0 {
			notes = append(notes, clusterworker.Reported{ClusterID: rows[i].ClusterID, Version: rows[i].ReportVersion, Next: o.next})
		}
		answered = answered || o.result.hasAnswer()
		if o.away != nil {
			away = o.away
		}
	}
	if err := b.saveReported(ctx, notes); err != nil {
		return false, false, err
	}
	if away != nil && !answered {
		return false, false, away
	}
	return len(rows) == batch, answered, nil
}

func (b *Bridge) listDue(ctx context.Context) ([]clusterworker.Row, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, errors.New("database request timed out"))
	defer cancel()
	rows, err := b.deps.Store.DueReports(ctx, batch)
	if err != nil {
		return nil, fmt.Errorf("read due reports: %w", err)
	}
	return rows, nil
}

// saveReported notes reports that were made even if we are to stop: otherwise they were
// made again.
func (b *Bridge) saveReported(ctx context.Context, notes []clusterworker.Reported) error {
	if len(notes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), queryTimeout, errors.New("database request timed out"))
	defer cancel()
	if err := b.deps.Store.Reported(ctx, notes); err != nil {
		return fmt.Errorf("record %d reports: %w", len(notes), err)
	}
	return nil
}

// reportRow reports on one row, as it was read at some time.
func (b *Bridge) reportRow(ctx context.Context, row clusterworker.Row, now time.Time) outcome {
	next, ready := nextOthers, isReady(&row)
	if ready {
		next = nextReady
	}
	current, known := b.deps.Observer.Current(&row)
	switch {
	case !ready && row.Status != v1.ShootError:
		// What it says does not become wrong by a change of the Shoot.
	case ready && !known && time.Since(b.leadsSince) < patience:
		return outcome{result: resultUnseen, next: nextUnseen}
	case known && !current:
		row.Status, row.StatusMessage = v1.ShootProgressing, "Gardener accepted the last change; its status is not known yet"
		next = nextUnseen
	}
	report, ok := Report(row, now)
	if !ok {
		return outcome{result: resultUntried, next: next}
	}
	tctx, cancel := context.WithTimeoutCause(ctx, b.cfg.Timeout, errors.New("fleet API request timed out"))
	defer cancel()
	stored, err := b.deps.Fleet.Report(tctx, collection, row.ClusterID, report)
	if err == nil {
		err = b.tellPools(tctx, row, known && current, now)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return outcome{}
	case err != nil:
		return b.handleRefusal(ctx, &row, err)
	case !stored:
		return outcome{result: resultIgnored, next: nextOthers}
	case next == nextReady:
		// Clusters that were made together are not to be reported together for ever.
		next -= time.Duration(rand.Int64N(int64(nextReady / 10))) //nolint:gosec // when a report is repeated is no secret
	}
	return outcome{result: resultStored, next: next}
}

// handleRefusal says what to do about a report that was not taken.
func (b *Bridge) handleRefusal(ctx context.Context, row *clusterworker.Row, err error) outcome {
	switch code := statusOf(err); {
	case code == http.StatusNotFound:
		b.log.DebugContext(ctx, "cluster not found in fleet API, report skipped", "cluster_id", row.ClusterID)
		return outcome{result: resultGone, next: nextReady}
	case code == http.StatusUnauthorized, code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests:
	case code >= 400 && code < 500:
		b.log.WarnContext(ctx, "fleet API rejected report", "cluster_id", row.ClusterID, "err", err)
		return outcome{result: resultRefused, next: nextReady}
	}
	// Others go first meanwhile, lest one that always fails is always tried first.
	return outcome{result: resultFailed, next: nextFailed, away: err}
}

// statusOf is the status of the answer that an error stands for, 0 if there was
// none.
func statusOf(err error) int {
	type coder interface {
		error
		StatusCode() int
	}
	if e, ok := errors.AsType[coder](err); ok {
		return e.StatusCode()
	}
	return 0
}
