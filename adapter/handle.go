package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

// reportTimeout limits the sending of one report. It also applies after the end of Run.
const reportTimeout = 15 * time.Second

var (
	errTimeout = errors.New("the timeout of Reconcile expired")
	errStopped = errors.New("the adapter was stopped")
	errReport  = errors.New("report") // of a report that the fleet API did not store
)

// A retryError returns an event to the broker.
type retryError struct {
	error

	delay time.Duration
}

// RetryAfter returns the delay before the event is delivered again.
func (e retryError) RetryAfter() time.Duration { return e.delay }

// Unwrap returns the cause.
func (e retryError) Unwrap() error { return e.error }

// handleEvent handles one event. See Consumer for the meaning of the error.
func (a *Adapter) handleEvent(ctx context.Context, e Event) error {
	ctx = telemetry.WithRemoteTraceContext(ctx, e.TraceParent, e.TraceState)
	ctx, span := a.tracer.Start(ctx, "reconcile", trace.WithSpanKind(trace.SpanKindConsumer))
	defer span.End()
	res := Result{Event: e}
	err := a.evaluateEventInTurn(ctx, &res)
	if res.Err != nil && !errors.Is(res.Err, errOtherCollection) {
		span.SetStatus(codes.Error, res.Err.Error())
	}
	a.metrics.events.WithLabelValues(string(res.Outcome)).Inc()
	a.logResult(ctx, &res)
	a.deps.OnResult(res)
	return err
}

func (a *Adapter) logResult(ctx context.Context, res *Result) {
	log := a.log.With("event_id", res.Event.ID, "collection", res.Collection, "resource_id", res.ResourceID, "outcome", string(res.Outcome))
	switch res.Outcome {
	case OutcomeDeadLettered, OutcomeRejected:
		log.ErrorContext(ctx, "event dead-lettered", "err", res.Err)
	case OutcomeFailed, OutcomeUnavailable:
		log.WarnContext(ctx, "event returned for a retry", "err", res.Err)
	case OutcomeIgnored:
		level := slog.LevelWarn
		if errors.Is(res.Err, errOtherCollection) {
			level = slog.LevelDebug
		}
		log.Log(ctx, level, "event ignored", "event_type", res.Event.Type, "err", res.Err)
	case OutcomeReported: // changes at info, so that an adapter visibly works
		log = log.With("resource_name", res.ResourceName, "generation", res.Report.ObservedGeneration)
		if i := slices.IndexFunc(res.Report.Conditions, isAvailable); i >= 0 {
			c := res.Report.Conditions[i]
			log = log.With("available", c.Status, "reason", c.Reason, "message", c.Message)
		}
		level := slog.LevelDebug
		if res.Changed {
			level = slog.LevelInfo
		}
		log.Log(ctx, level, "reported")
	case OutcomeDiscarded, OutcomeDuplicate, OutcomePostponed, OutcomeGone, OutcomeStopped:
		log.DebugContext(ctx, "event handled")
	}
}

// differsFromLastReport reports whether a report differs from the last one of the adapter in its generation or in Available.
func differsFromLastReport(r Resource, adapter string, report v1.Report) bool {
	i := slices.IndexFunc(r.Reports, func(s v1.AdapterStatus) bool { return s.Adapter == adapter })
	return i < 0 || r.Reports[i].ObservedGeneration != report.ObservedGeneration ||
		r.HasReported(adapter, v1.ConditionAvailable) != slices.ContainsFunc(report.Conditions, func(c v1.ReportCondition) bool {
			return isAvailable(c) && c.Status == v1.ConditionTrue
		})
}

// evaluateEventInTurn evaluates the resource of an event when its turn has come.
func (a *Adapter) evaluateEventInTurn(ctx context.Context, res *Result) error {
	s, generation, err := parseResourceAndGeneration(res.Event, a.cfg.Collections)
	res.Collection, res.ResourceID = s.collection, s.id
	if err != nil {
		res.Outcome, res.Err = OutcomeIgnored, err
		return nil
	}
	evaluation, err := a.order.waitAndBegin(ctx, s, res.Event.ID, generation)
	switch {
	case errors.Is(err, errHandled):
		res.Outcome = OutcomeDuplicate
		return nil
	case errors.Is(err, errReplaced):
		res.Outcome = OutcomePostponed
		return retryError{err, a.cfg.RetryDelay}
	case err != nil:
		res.Outcome = OutcomeStopped
		return err
	}
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
		a.metrics.inProgress.Inc()
		defer a.metrics.inProgress.Dec()
		return a.reconcileAndReport(ctx, evaluation, generation, res)
	case <-ctx.Done():
		evaluation.abandon()
		res.Outcome = OutcomeStopped
		return context.Cause(ctx)
	}
}

// maxBehindReads is how often an event waits for its generation. After a restore of the fleet API's database it may never
// come.
const maxBehindReads = 10

// reconcileAndReport reads the resource, reconciles it and reports. It ends the evaluation. If the resource is older than
// the generation of the event, the event is returned.
func (a *Adapter) reconcileAndReport(ctx context.Context, evaluation *evaluation, generation int64, res *Result) error {
	r, err := a.getResourceAndReports(ctx, res)
	if err != nil {
		return a.endByFleetErrorStatus(ctx, evaluation, res, err)
	}
	res.ResourceName = r.Name
	if r.Generation < generation && evaluation.behindReads() < maxBehindReads {
		evaluation.endAsBehind()
		res.Outcome = OutcomePostponed
		return retryError{fmt.Errorf("the fleet API returned generation %d, the event names %d", r.Generation, generation), a.cfg.RetryDelay}
	}
	report, failure := a.reconcileWithTimeout(ctx, r)
	if failure != nil && ctx.Err() != nil {
		evaluation.abandon() // the failure may only be that of the stop
		res.Outcome = OutcomeStopped
		return context.Cause(ctx)
	}
	attempt := evaluation.attempts() + 1
	last := failure != nil && (attempt >= a.cfg.MaxAttempts || IsPermanent(failure))
	if failure != nil {
		report = failureReport(report, failure, last)
	}
	res.Report = newWireReportWithDefaultHealth(a.cfg.Name, r.Generation, time.Now(), report)
	res.Changed = differsFromLastReport(r, a.cfg.Name, res.Report)
	stored, err := a.sendReport(ctx, res)
	if err != nil {
		return a.endByFleetErrorStatus(ctx, evaluation, res, err)
	}
	switch {
	case failure == nil:
		evaluation.endAsSucceeded(r.Generation)
		if res.Outcome = OutcomeReported; !stored {
			res.Outcome = OutcomeDiscarded
		}
		return nil
	case last:
		evaluation.endAsFailed(true)
		res.Outcome, res.Err = OutcomeDeadLettered, failure
		return Permanent(fmt.Errorf("reconcile: attempt %d of %d: %w", attempt, a.cfg.MaxAttempts, failure))
	}
	evaluation.endAsFailed(false)
	res.Outcome, res.Err = OutcomeFailed, failure
	return retryError{failure, a.retryDelay(attempt-1, failure)}
}

// retryDelay returns the delay after a number of earlier failures, or the longer one that err asks for.
func (a *Adapter) retryDelay(failures int, err error) time.Duration {
	delay := a.retryPolicy().Delay(failures)
	if asked, ok := backoff.RetryAfter(err); ok {
		delay = max(delay, asked)
	}
	return delay
}

func (a *Adapter) getResourceAndReports(ctx context.Context, res *Result) (Resource, error) {
	r, err := a.fleet.Get(ctx, res.Collection, res.ResourceID)
	if err != nil {
		return Resource{}, fmt.Errorf("get resource: %w", err)
	}
	reports, err := a.fleet.Statuses(ctx, res.Collection, res.ResourceID)
	if err != nil {
		return Resource{}, fmt.Errorf("get reports: %w", err)
	}
	if err := a.fleetErr.Load(); err != nil && !errors.Is(*err, errReport) {
		a.recordFleetAnswer()
	}
	return Resource{Resource: r, Collection: res.Collection, Reports: reports}, nil
}

// reconcileWithTimeout calls the reconciler. Its context ends StopTimeout after that of the adapter.
func (a *Adapter) reconcileWithTimeout(ctx context.Context, r Resource) (report Report, err error) {
	work, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), a.cfg.Timeout, errTimeout)
	defer cancel()
	work, stop := context.WithCancelCause(work)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() {
		if backoff.Sleep(work, a.cfg.StopTimeout) == nil {
			stop(errStopped)
		}
	})()
	begin := time.Now()
	defer func() {
		a.metrics.duration.Observe(time.Since(begin).Seconds())
		if v := recover(); v != nil {
			a.log.ErrorContext(ctx, "reconcile panicked", "resource_id", r.ID, "panic", v, "stack", string(debug.Stack()))
			report, err = Report{}, fmt.Errorf("panic: %v", v)
		}
	}()
	report, err = a.reconciler.Reconcile(work, r)
	if err == nil {
		err = report.validate(r.Deleting())
	}
	return report, err
}

// sendReport sends a report, also if the adapter was stopped meanwhile.
func (a *Adapter) sendReport(ctx context.Context, res *Result) (stored bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	stored, err = a.fleet.Report(ctx, res.Collection, res.ResourceID, res.Report)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errReport, err)
	}
	a.recordFleetAnswer()
	return stored, nil
}

// recordFleetAnswer ends an outage of the fleet API.
func (a *Adapter) recordFleetAnswer() {
	a.outage.Store(0)
	a.fleetErr.Store(nil)
}

// endByFleetErrorStatus ends an evaluation for which the fleet API returned an error.
func (a *Adapter) endByFleetErrorStatus(ctx context.Context, evaluation *evaluation, res *Result, err error) error {
	res.Err = err
	status := httpStatusOf(err)
	switch {
	case status == http.StatusNotFound:
		a.recordFleetAnswer()
		evaluation.endAsSucceeded(0)
		res.Outcome, res.Err = OutcomeGone, nil
		return nil
	case isPermanentHTTPStatus(status):
		a.recordFleetAnswer()
		evaluation.endAsFailed(true)
		res.Outcome = OutcomeRejected
		return Permanent(err)
	}
	evaluation.abandon()
	if ctx.Err() != nil {
		res.Outcome, res.Err = OutcomeStopped, nil
		return context.Cause(ctx)
	}
	res.Outcome = OutcomeUnavailable
	a.fleetErr.Store(&err)
	return retryError{err, a.retryDelay(int(a.outage.Add(1))-1, err)}
}

// isPermanentHTTPStatus reports whether the same request would be refused again. Permissions and rate limits
// may change, so their errors are not final.
func isPermanentHTTPStatus(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status < 500
}

// httpStatusOf returns the HTTP status of an error of the fleet API, or 0.
func httpStatusOf(err error) int {
	if e, ok := errors.AsType[interface {
		error
		StatusCode() int
	}](err); ok {
		return e.StatusCode()
	}
	return 0
}
