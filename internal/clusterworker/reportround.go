package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A reportOutcome is the result of one report with its consequences.
type reportOutcome struct {
	result reportResult
	// next is the delay of the row's next report; 0 leaves the report due.
	next time.Duration
	// apiErr is the error of the fleet API, if it may concern all reports.
	apiErr error
}

// A reportRound is the result of sending the reports that are due.
type reportRound struct {
	mayHaveMore bool // other reports may be due
	apiAnswered bool // the fleet API answered
}

// sendAndRecordDueReports sends the reports that are due, and records when they are due again. The error is one of the
// database, or of a fleet API that accepts no report at all.
func (r *Reporter) sendAndRecordDueReports(ctx context.Context) (reportRound, error) {
	readAt := time.Now()
	rows, err := r.listRowsDueForReport(ctx)
	if err != nil || len(rows) == 0 {
		return reportRound{}, err
	}
	outcomes := r.sendReportsConcurrently(ctx, rows, readAt)

	round := reportRound{mayHaveMore: len(rows) == reportBatch}
	var apiErr error
	var sent []Reported
	for i, outcome := range outcomes {
		if outcome.next > 0 {
			sent = append(sent, Reported{ClusterID: rows[i].ClusterID, Version: rows[i].ReportVersion, Next: outcome.next})
		}
		round.apiAnswered = round.apiAnswered || outcome.result.isFleetAPIAnswer()
		if outcome.apiErr != nil {
			apiErr = outcome.apiErr
		}
	}
	if err := r.recordSentReports(ctx, sent); err != nil {
		return reportRound{}, err
	}
	if apiErr != nil && !round.apiAnswered {
		return reportRound{}, apiErr
	}
	return round, nil
}

func (r *Reporter) listRowsDueForReport(ctx context.Context) ([]Row, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, reportQueryTimeout, errStoreTimeout)
	defer cancel()
	rows, err := r.deps.Store.ListDueReports(ctx, reportBatch)
	if err != nil {
		return nil, fmt.Errorf("read due reports: %w", err)
	}
	return rows, nil
}

// sendReportsConcurrently reports on rows, and returns their outcomes in the same order. It leaves out the rest when ctx
// ends or this process is no longer the leader.
func (r *Reporter) sendReportsConcurrently(ctx context.Context, rows []Row, readAt time.Time) []reportOutcome {
	outcomes := make([]reportOutcome, len(rows))
	slots := make(chan struct{}, r.cfg.InFlight)
	var reports sync.WaitGroup
	for i := range rows {
		slots <- struct{}{} // waits for a free one
		if ctx.Err() != nil || !r.deps.Observer.IsLeader() {
			break
		}
		reports.Go(func() {
			defer func() { <-slots }()
			outcomes[i] = r.sendClusterAndPoolReports(ctx, rows[i], readAt)
			r.metrics.countReport(outcomes[i].result)
		})
	}
	reports.Wait()
	return outcomes
}

// recordSentReports records reports even during shutdown, as they would be repeated
// otherwise.
func (r *Reporter) recordSentReports(ctx context.Context, sent []Reported) error {
	if len(sent) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), reportQueryTimeout, errStoreTimeout)
	defer cancel()
	if err := r.deps.Store.RecordReports(ctx, sent); err != nil {
		return fmt.Errorf("record %d reports: %w", len(sent), err)
	}
	return nil
}

// sendClusterAndPoolReports reports on one row that was read at the given time.
func (r *Reporter) sendClusterAndPoolReports(ctx context.Context, row Row, readAt time.Time) reportOutcome {
	isReady := isShootReady(&row)
	isCurrent, isKnown := r.deps.Observer.IsStatusCurrent(&row)
	if isReady && !isKnown && time.Since(r.leadsSince) < observationPatience {
		return reportOutcome{result: resultUnseen, next: unseenReportDelay}
	}
	next := r.chooseReportDelay(&row, isKnown)
	// A change of the Shoot does not invalidate any other status.
	isInvalidatedByChange := isReady || row.Status == v1.ShootError
	if isInvalidatedByChange && isKnown && !isCurrent {
		markStatusOutdated(&row)
		next = unseenReportDelay
	}
	report, ok := BuildClusterReport(row, readAt)
	if !ok {
		return reportOutcome{result: resultUntried, next: next}
	}

	stored, err := r.sendReportThenPoolReports(ctx, row, report, isKnown && isCurrent)
	switch {
	case err != nil && ctx.Err() != nil:
		return reportOutcome{}
	case err != nil:
		return r.logAndClassifyReportError(ctx, &row, err)
	case !stored:
		return reportOutcome{result: resultIgnored, next: otherReportDelay}
	}
	return reportOutcome{result: resultStored, next: next}
}

// chooseReportDelay returns the delay of the next report on a row, given whether its Shoot was observed.
func (r *Reporter) chooseReportDelay(row *Row, isKnown bool) time.Duration {
	isOfThisTerm := row.StatusUpdated != nil && row.StatusUpdated.After(r.leadsSince)
	switch {
	case !isShootReady(row):
		return otherReportDelay
	case isKnown:
		// The jitter spreads out clusters that were created together.
		return readyReportDelay - rand.N(readyReportDelay/10) //nolint:gosec // when a report is repeated is no secret
	case isOfThisTerm: // it is being written
		return otherReportDelay
	default:
		// Its node pools may wait until the Shoot is observed. The longer that takes, the rarer are the reports, because
		// during an outage of Gardener it concerns all clusters.
		return min(max(otherReportDelay, time.Since(r.leadsSince)/2), readyReportDelay)
	}
}

// markStatusOutdated replaces a status that is about the Shoot before its last change.
func markStatusOutdated(row *Row) {
	row.Status, row.StatusMessage = v1.ShootProgressing, "Gardener accepted the last change; its status is not known yet"
}

// sendReportThenPoolReports sends the report on a cluster and those on its node pools.
func (r *Reporter) sendReportThenPoolReports(
	ctx context.Context,
	row Row,
	report v1.Report,
	statusIsCurrent bool,
) (stored bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Timeout, errors.New("fleet API request timed out"))
	defer cancel()
	stored, err = r.deps.Fleet.Report(ctx, clustersCollection, row.ClusterID, report)
	if err != nil {
		return false, err
	}
	return stored, r.sendAllPoolReports(ctx, row, statusIsCurrent, *report.ObservedTime)
}

// logAndClassifyReportError returns the outcome of a report that failed.
func (r *Reporter) logAndClassifyReportError(ctx context.Context, row *Row, err error) reportOutcome {
	code := httpStatusOrZero(err)
	if code == http.StatusNotFound {
		r.log.DebugContext(ctx, "cluster not found in fleet API, report skipped", "cluster_id", row.ClusterID)
		return reportOutcome{result: resultGone, next: readyReportDelay}
	}
	temporary := []int{http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}
	isClientError := code >= 400 && code < 500
	if isClientError && !slices.Contains(temporary, code) {
		r.log.WarnContext(ctx, "fleet API rejected report", "cluster_id", row.ClusterID, "err", err)
		return reportOutcome{result: resultRefused, next: readyReportDelay}
	}
	// Other reports go first, so that one that always fails does not block them.
	return reportOutcome{result: resultFailed, next: failedReportDelay, apiErr: err}
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
