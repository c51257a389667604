package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A reportOutcome is the result of one report with its consequences.
type reportOutcome struct {
	result reportResult
	// next is the delay of the row's next report; 0 leaves the report due.
	next time.Duration
	// away is the error of the fleet API, if it may concern all reports.
	away error
}

// sendAndRecordDueReports sends the reports that are due. mayHaveMore is whether others may be due, and
// apiAnswered whether the fleet API answered. The error is one of the database, or of a
// fleet API that accepts no report at all.
func (b *Reporter) sendAndRecordDueReports(ctx context.Context) (mayHaveMore, apiAnswered bool, err error) {
	now := time.Now()
	rows, err := b.listRowsDueForReport(ctx)
	if err != nil || len(rows) == 0 {
		return false, false, err
	}
	outcomes := make([]reportOutcome, len(rows))
	var wg sync.WaitGroup
	slots := make(chan struct{}, b.cfg.InFlight)
	for i := range rows {
		slots <- struct{}{}
		if ctx.Err() != nil || !b.deps.Observer.IsLeader() {
			<-slots
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			outcomes[i] = b.sendClusterAndPoolReports(ctx, rows[i], now)
			b.metrics.countReport(outcomes[i].result)
		})
	}
	wg.Wait()

	var away error
	var notes []Reported
	for i, o := range outcomes {
		if o.next > 0 {
			notes = append(notes, Reported{ClusterID: rows[i].ClusterID, Version: rows[i].ReportVersion, Next: o.next})
		}
		apiAnswered = apiAnswered || o.result.isFleetAPIAnswer()
		if o.away != nil {
			away = o.away
		}
	}
	if err := b.recordSentReports(ctx, notes); err != nil {
		return false, false, err
	}
	if away != nil && !apiAnswered {
		return false, false, away
	}
	return len(rows) == reportBatch, apiAnswered, nil
}

func (b *Reporter) listRowsDueForReport(ctx context.Context) ([]Row, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, reportQueryTimeout, errors.New("database request timed out"))
	defer cancel()
	rows, err := b.deps.Store.ListDueReports(ctx, reportBatch)
	if err != nil {
		return nil, fmt.Errorf("read due reports: %w", err)
	}
	return rows, nil
}

// recordSentReports records reports even during shutdown, as they would be repeated
// otherwise.
func (b *Reporter) recordSentReports(ctx context.Context, sent []Reported) error {
	if len(sent) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), reportQueryTimeout, errors.New("database request timed out"))
	defer cancel()
	if err := b.deps.Store.RecordReports(ctx, sent); err != nil {
		return fmt.Errorf("record %d reports: %w", len(sent), err)
	}
	return nil
}

// sendClusterAndPoolReports reports on one row that was read at the given time.
func (b *Reporter) sendClusterAndPoolReports(ctx context.Context, row Row, readAt time.Time) reportOutcome {
	next, ready := otherReportDelay, isShootReady(&row)
	if ready {
		next = readyReportDelay
	}
	current, known := b.deps.Observer.IsStatusCurrent(&row)
	switch {
	case !ready && row.Status != v1.ShootError:
		// A change of the Shoot does not invalidate such a status.
	case ready && !known && time.Since(b.leadsSince) < observationPatience:
		return reportOutcome{result: resultUnseen, next: unseenReportDelay}
	case known && !current:
		row.Status, row.StatusMessage = v1.ShootProgressing, "Gardener accepted the last change; its status is not known yet"
		next = unseenReportDelay
	}
	report, ok := BuildClusterReport(row, readAt)
	if !ok {
		return reportOutcome{result: resultUntried, next: next}
	}
	tctx, cancel := context.WithTimeoutCause(ctx, b.cfg.Timeout, errors.New("fleet API request timed out"))
	defer cancel()
	stored, err := b.deps.Fleet.Report(tctx, clustersCollection, row.ClusterID, report)
	if err == nil {
		err = b.sendPoolReports(tctx, row, known && current, readAt)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return reportOutcome{}
	case err != nil:
		return b.logAndClassifyReportError(ctx, &row, err)
	case !stored:
		return reportOutcome{result: resultIgnored, next: otherReportDelay}
	case next == readyReportDelay:
		// The jitter spreads out clusters that were created together.
		next -= time.Duration(rand.Int64N(int64(readyReportDelay / 10))) //nolint:gosec // when a report is repeated is no secret
	}
	return reportOutcome{result: resultStored, next: next}
}

// logAndClassifyReportError returns the outcome of a report that failed.
func (b *Reporter) logAndClassifyReportError(ctx context.Context, row *Row, err error) reportOutcome {
	switch code := httpStatusOrZero(err); {
	case code == http.StatusNotFound:
		b.log.DebugContext(ctx, "cluster not found in fleet API, report skipped", "cluster_id", row.ClusterID)
		return reportOutcome{result: resultGone, next: readyReportDelay}
	case code == http.StatusUnauthorized, code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests:
	case code >= 400 && code < 500:
		b.log.WarnContext(ctx, "fleet API rejected report", "cluster_id", row.ClusterID, "err", err)
		return reportOutcome{result: resultRefused, next: readyReportDelay}
	}
	// Other reports go first, so that one that always fails does not block them.
	return reportOutcome{result: resultFailed, next: failedReportDelay, away: err}
}

// httpStatusOrZero returns the HTTP status of an error, 0 if it has none.
func httpStatusOrZero(err error) int {
	type coder interface {
		error
		StatusCode() int
	}
	if e, ok := errors.AsType[coder](err); ok {
		return e.StatusCode()
	}
	return 0
}
