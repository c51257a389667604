package operator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// metrics are the metrics of the operator. Label values are phases, outcomes, reasons and actions
// of the catalogue; a request cannot choose any.
type metrics struct {
	created, deleted     prometheus.Counter
	executions           *prometheus.CounterVec
	duration             *prometheus.HistogramVec
	phases               *prometheus.HistogramVec
	lifetime             prometheus.Histogram
	dryRuns              *prometheus.CounterVec
	jobs                 *prometheus.CounterVec
	failures             *prometheus.CounterVec
	decisions            *prometheus.CounterVec
	approvalWait         prometheus.Histogram
	rollbacks            *prometheus.CounterVec
	startsBlocked        *prometheus.CounterVec
	queueWait            prometheus.Histogram
	conditions           *prometheus.CounterVec
	failedPreconditions  *prometheus.CounterVec
	failedPostconditions *prometheus.CounterVec
	dryRunTime           *prometheus.HistogramVec
	jobCreationTime      prometheus.Histogram
	unreadableResults    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		reg.MustRegister(h)
		return h
	}
	waits := prometheus.ExponentialBuckets(1, 4, 8) // up to 4.5 hours
	runs := prometheus.ExponentialBuckets(0.5, 2, 12)
	m := &metrics{
		executions:           counter("kubernetesexecution_action_execution_total", "Total number of KubernetesExecutions that ended, by action and status: succeeded, partially_succeeded (the action succeeded, but an optional postcondition failed), failed or unknown (no outcome was recorded).", "status", "action"),
		duration:             histogram("kubernetesexecution_action_execution_duration_seconds", "Time from the start to the end of the action of a KubernetesExecution, in seconds, by action, such as scale_deployment. Failed actions are included.", runs, "action"),
		phases:               histogram("kubernetesexecution_phase_duration_seconds", "Time that a KubernetesExecution spent in a phase, in seconds, by phase. The time is observed when the KubernetesExecution leaves the phase.", prometheus.ExponentialBuckets(0.01, 4, 12), "phase"),
		dryRuns:              counter("kubernetesexecution_dryrun_validation_total", "Total number of dry runs of KubernetesExecutions, by status (success or failed) and action.", "status", "action"),
		jobs:                 counter("kubernetesexecution_job_creation_total", "Total number of requests that create the Jobs of KubernetesExecutions, by status: created or failed.", "status"),
		failures:             counter("kubernetesexecution_failures_total", "Total number of KubernetesExecutions that failed, by reason (status.reason) and detail (status.reasonDetail).", "reason", "detail"),
		decisions:            counter("kubernetesexecution_approval_decisions_total", "Total number of KubernetesExecutions whose wait for approval ended, by decision: approved, rejected or expired (no decision before the deadline).", "decision"),
		rollbacks:            counter("kubernetesexecution_rollback_prepared_total", "Total number of KubernetesExecutions whose change a user can roll back, by action. The controller has recorded the action and the parameters that revert the change; the rollback itself is not counted.", "action"),
		startsBlocked:        counter("kubernetesexecution_start_blocked_total", "Total number of times that a KubernetesExecution could not start its action, by reason: target_busy (another KubernetesExecution changes the same object), cooldown (the action ran on the object too recently), budget_exceeded (too many actions run), emergency_stop (all actions are stopped) or circuit_open (too many failures in a row). With circuit_open, the KubernetesExecution fails immediately. With any other reason, it waits in a queue; it is counted again if the reason changes, or if it fails because it waited too long.", "reason"),
		approvalWait:         prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubernetesexecution_approval_wait_seconds", Help: "Time that KubernetesExecutions waited until a person approved or rejected them, in seconds.", Buckets: waits}),
		queueWait:            prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubernetesexecution_queue_duration_seconds", Help: "Time that KubernetesExecutions waited in the queue until their action started, in seconds. KubernetesExecutions that start without a wait are not observed.", Buckets: waits}),
		lifetime:             prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubernetesexecution_lifecycle_duration_seconds", Help: "Time from the creation of a KubernetesExecution until it ends, in seconds.", Buckets: waits}),
		conditions:           counter("kubernetesexecution_condition_evaluations_total", "Total number of evaluations of the preconditions and postconditions of KubernetesExecutions, by kind (precondition or postcondition) and result: passed, failed or error (treated as failed).", "kind", "result"),
		failedPreconditions:  counter("kubernetesexecution_blocked_by_precondition_total", "Total number of KubernetesExecutions that failed because a required precondition did not pass, by action.", "action"),
		failedPostconditions: counter("kubernetesexecution_failed_by_postcondition_total", "Total number of KubernetesExecutions that failed because a required postcondition did not pass, by action.", "action"),
		dryRunTime:           histogram("kubernetesexecution_dryrun_validation_duration_seconds", "Duration of dry runs of KubernetesExecutions in seconds, by action. If the dry run is a Job, the time until its container starts is not included.", prometheus.ExponentialBuckets(0.001, 2, 15), "action"),
		jobCreationTime:      prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubernetesexecution_job_creation_duration_seconds", Help: "Duration of requests that create the Jobs of KubernetesExecutions in seconds, including failed requests.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}),
		unreadableResults:    prometheus.NewCounter(prometheus.CounterOpts{Name: "kubernetesexecution_result_parse_failures_total", Help: "Total number of Jobs of KubernetesExecutions that ended, but whose result the controller could not read."}),
		created:              prometheus.NewCounter(prometheus.CounterOpts{Name: "kubernetesexecution_created_total", Help: "Total number of new KubernetesExecutions that the controller started to process."}),
		deleted:              prometheus.NewCounter(prometheus.CounterOpts{Name: "kubernetesexecution_retention_deletions_total", Help: "Total number of finished KubernetesExecutions that the controller deleted because their retention period was over."}),
	}
	reg.MustRegister(m.approvalWait, m.queueWait, m.lifetime, m.jobCreationTime, m.unreadableResults, m.created, m.deleted)
	return m
}

// actionLabel returns the action if it is in the catalogue, else "unknown".
func actionLabel(ke *v1alpha1.KubernetesExecution) string {
	if a, known := action.Find(ke.Spec.Action); known {
		return a.Name
	}
	return "unknown"
}

// countTransitions counts the transitions of one write.
func (m *metrics) countTransitions(before, ke *v1alpha1.KubernetesExecution) {
	earlier := before.Status.PhaseTransitions
	phase := before.Status.Phase
	entered := ke.CreationTimestamp.Time
	if len(earlier) > 0 {
		entered = earlier[len(earlier)-1].At.Time
	}
	for _, next := range ke.Status.PhaseTransitions[len(earlier):] {
		if phase == v1alpha1.PhaseNew {
			m.created.Inc()
		} else {
			m.phases.WithLabelValues(string(phase)).Observe(max(0, next.At.Sub(entered).Seconds()))
		}
		m.countDryRunAndQueueWait(phase, before, ke, next.At.Time)
		m.countPhaseEntry(next.Phase, ke, next.At.Time)
		phase, entered = next.Phase, next.At.Time
	}
}

// countDryRunAndQueueWait counts the results of a phase that an execution leaves.
func (m *metrics) countDryRunAndQueueWait(p v1alpha1.Phase, before, ke *v1alpha1.KubernetesExecution, now time.Time) {
	if p == v1alpha1.PhaseValidating {
		m.countDryRun(ke)
	}
	// The whole wait counts, independent of the last reason for it.
	wasQueued := findCondition(&before.Status, v1alpha1.ConditionQueued) != nil
	if wasQueued && ke.Status.Phase == v1alpha1.PhaseExecuting {
		m.queueWait.Observe(max(0, now.Sub(readyTime(before)).Seconds()))
	}
}

// countDryRun counts the dry run of an execution, if it was performed.
func (m *metrics) countDryRun(ke *v1alpha1.KubernetesExecution) {
	validation := ke.Status.ValidationResults
	if validation == nil || validation.DryRunResults == nil || !validation.DryRunResults.Performed {
		return
	}
	result := "failed"
	if validation.DryRunResults.Success {
		result = "success"
	}
	m.dryRuns.WithLabelValues(result, actionLabel(ke)).Inc()
}

// countPhaseEntry counts the phase that an execution enters.
func (m *metrics) countPhaseEntry(p v1alpha1.Phase, ke *v1alpha1.KubernetesExecution, now time.Time) {
	status := &ke.Status
	if p == v1alpha1.PhaseRollbackReady && status.RollbackInformation != nil && status.RollbackInformation.Available {
		m.rollbacks.WithLabelValues(actionLabel(ke)).Inc()
	}
	if p == v1alpha1.PhaseRollbackReady && status.Reason == v1alpha1.ReasonPostConditionFailed { // it ends as failed for this reason
		m.failedPostconditions.WithLabelValues(actionLabel(ke)).Inc()
	}
	if p == v1alpha1.PhaseFailed {
		m.failures.WithLabelValues(string(status.Reason), string(status.ReasonDetail)).Inc()
		if status.ReasonDetail == v1alpha1.DetailPreConditionFailed {
			m.failedPreconditions.WithLabelValues(actionLabel(ke)).Inc()
		}
		if status.Approval != nil && status.Approval.State == v1alpha1.ApprovalExpired {
			m.decisions.WithLabelValues("expired").Inc()
		}
	}
	if execution.IsFinal(p) {
		m.executions.WithLabelValues(outcomeLabelOrUnknown(status.Outcome), actionLabel(ke)).Inc()
		m.lifetime.Observe(max(0, now.Sub(ke.CreationTimestamp.Time).Seconds()))
	}
}

func outcomeLabelOrUnknown(o v1alpha1.Outcome) string {
	switch o {
	case v1alpha1.OutcomeSucceeded:
		return "succeeded"
	case v1alpha1.OutcomePartial:
		return "partially_succeeded"
	case v1alpha1.OutcomeFailed:
		return "failed"
	}
	return "unknown"
}

// observeAction observes the duration of an action and counts unreadable results.
func (m *metrics) observeAction(ke *v1alpha1.KubernetesExecution, o job.Observation) {
	if o.Unreadable {
		m.unreadableResults.Inc()
	}
	if r := ke.Status.ExecutionResults; r != nil && r.StartTime != nil && r.EndTime != nil {
		m.duration.WithLabelValues(actionLabel(ke)).Observe(max(0, r.EndTime.Sub(r.StartTime.Time).Seconds()))
	}
}

// countDecision counts an approval or a rejection.
func (m *metrics) countDecision(ke *v1alpha1.KubernetesExecution, d v1alpha1.ApprovalDecision, now time.Time) {
	label := "approved"
	if d == v1alpha1.Reject {
		label = "rejected"
	}
	m.decisions.WithLabelValues(label).Inc()
	m.approvalWait.Observe(max(0, now.Sub(execution.PhaseStartOrNow(ke, v1alpha1.PhaseWaitingApproval, now)).Seconds()))
}

// countStartBlocked counts an execution that cannot start or has waited too long.
func (m *metrics) countStartBlocked(d v1alpha1.Detail) {
	m.startsBlocked.WithLabelValues(string(d)).Inc()
}

// phaseGauges counts at each scrape the executions in each phase and the age of the oldest.
type phaseGauges struct {
	executions     executions
	active, oldest *prometheus.GaugeVec
	pending        prometheus.Gauge
	log            *slog.Logger
}

func newPhaseGauges(e executions, log *slog.Logger) *phaseGauges {
	return &phaseGauges{
		executions: e,
		log:        log,
		active:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetesexecution_active", Help: "Number of KubernetesExecutions that have not ended, by phase. A KubernetesExecution is a request to run one action on a Kubernetes object."}, []string{"phase"}),
		oldest:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetesexecution_phase_max_age_seconds", Help: "Longest time that any KubernetesExecution has been in its current phase, in seconds, by phase; 0 if none is in the phase. KubernetesExecutions that have ended are not included."}, []string{"phase"}),
		pending:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubernetesexecution_approvals_pending", Help: "Number of KubernetesExecutions that are currently waiting for approval."}),
	}
}

// Describe sends the descriptors.
func (g *phaseGauges) Describe(ch chan<- *prometheus.Desc) {
	g.active.Describe(ch)
	g.oldest.Describe(ch)
	g.pending.Describe(ch)
}

// nonFinalPhases returns the phases that executions leave again.
func nonFinalPhases() []v1alpha1.Phase {
	return []v1alpha1.Phase{
		v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval,
		v1alpha1.PhaseExecuting, v1alpha1.PhaseRollbackReady,
	}
}

// Collect counts the executions and sends the gauges.
func (g *phaseGauges) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errNoAnswer)
	defer cancel()
	all, err := g.executions.List(ctx)
	if err != nil {
		g.log.DebugContext(ctx, "counting executions failed", "err", err)
		return // the executions have not been listed yet
	}
	now := time.Now()
	count := map[v1alpha1.Phase]int{}
	oldest := map[v1alpha1.Phase]float64{} // age in seconds
	for i := range all {
		phase := all[i].Status.Phase
		age := now.Sub(execution.PhaseStartOrNow(&all[i], phase, now)).Seconds()
		count[phase]++
		oldest[phase] = max(oldest[phase], age)
	}
	for _, p := range nonFinalPhases() {
		g.active.WithLabelValues(string(p)).Set(float64(count[p]))
		g.oldest.WithLabelValues(string(p)).Set(oldest[p])
	}
	g.pending.Set(float64(count[v1alpha1.PhaseWaitingApproval]))
	g.active.Collect(ch)
	g.oldest.Collect(ch)
	g.pending.Collect(ch)
}

// RegisterMetrics registers the metrics of an operator and runs nothing. The reference of metrics uses it.
func RegisterMetrics(reg prometheus.Registerer) error {
	newMetrics(reg)
	_, writesErr := newWriteCounter(reg)
	_, outboxErr := NewOutbox(OutboxConfig{}, OutboxDeps{Registerer: reg})
	gaugesErr := reg.Register(newPhaseGauges(noExecutions{}, slog.New(slog.DiscardHandler)))
	return errors.Join(writesErr, outboxErr, gaugesErr)
}

// noExecutions is an empty list of executions.
type noExecutions struct{ executions }

// List returns an empty list.
func (noExecutions) List(context.Context) ([]v1alpha1.KubernetesExecution, error) { return nil, nil }

// measuredChecker is a checker that counts conditions and dry runs.
type measuredChecker struct {
	checker
	metrics *metrics
}

// Check runs the checks and counts them.
func (c measuredChecker) Check(
	ctx context.Context,
	ke *v1alpha1.KubernetesExecution,
	dry *action.Result,
	now time.Time,
) (check.Outcome, error) {
	out, err := c.checker.Check(ctx, ke, dry, now)
	c.metrics.countCheck(ke, out)
	return out, err
}

// Replan computes the plan again and counts the checks.
func (c measuredChecker) Replan(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) (check.Outcome, error) {
	out, err := c.checker.Replan(ctx, ke, now)
	c.metrics.countCheck(ke, out)
	return out, err
}

// EvaluatePostConditions evaluates the postconditions and counts them.
func (c measuredChecker) EvaluatePostConditions(
	ctx context.Context, ke *v1alpha1.KubernetesExecution, actionEnded, now time.Time,
) (results []v1alpha1.ConditionResult, wait time.Duration, err error) {
	results, wait, err = c.checker.EvaluatePostConditions(ctx, ke, actionEnded, now)
	c.metrics.countEvaluations("postcondition", results)
	return results, wait, err
}

// countCheck counts the conditions and the dry run of a check.
func (m *metrics) countCheck(ke *v1alpha1.KubernetesExecution, out check.Outcome) {
	m.countEvaluations("precondition", out.Results.PreConditionResults)
	if out.TrialTook > 0 {
		m.dryRunTime.WithLabelValues(actionLabel(ke)).Observe(out.TrialTook.Seconds())
	}
}

// countEvaluations counts evaluations of conditions by result.
func (m *metrics) countEvaluations(kind string, results []v1alpha1.ConditionResult) {
	for _, c := range results {
		result := "failed"
		switch {
		case c.Passed:
			result = "passed"
		case !c.Evaluated:
			result = "error"
		}
		m.conditions.WithLabelValues(kind, result).Inc()
	}
}

// timedJobs measures how long the creation of Jobs takes.
type timedJobs struct {
	jobs
	metrics *metrics
}

// CreateOrGet creates a Job and measures the duration.
func (j timedJobs) CreateOrGet(ctx context.Context, ke *v1alpha1.KubernetesExecution, built *batchv1.Job) (*batchv1.Job, error) {
	begin := time.Now()
	stored, err := j.jobs.CreateOrGet(ctx, ke, built)
	j.metrics.jobCreationTime.Observe(time.Since(begin).Seconds())
	return stored, err
}
