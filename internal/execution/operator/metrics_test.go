package operator

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
)

// scraped are the series of a registry that are not zero, without the prefix of
// their names: counters and gauges as they are, of histograms the sum and how
// often something was measured.
func scraped(t *testing.T, reg prometheus.Gatherer) map[string]string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]string{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "kubernetesexecution_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			if h := m.GetHistogram(); f.GetType() == dto.MetricType_HISTOGRAM && h.GetSampleCount() > 0 {
				series[name] = fmt.Sprintf("%gs in %d", h.GetSampleSum(), h.GetSampleCount())
			}
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue(); v != 0 {
				series[name] = fmt.Sprint(v)
			}
		}
	}
	return series
}

// counted is an operator that has just started, and what it counts.
func (w *fixture) counted(cfg Config) (*reconciler, *prometheus.Registry) {
	r, reg := w.newReconciler(cfg), prometheus.NewRegistry()
	*r.metrics = *newMetrics(reg)
	r.runs.jobs = timedJobs{storedJobs{w}, r.metrics}
	reg.MustRegister(newPhaseGauges(r.writer.executions, slog.New(slog.DiscardHandler)))
	return r, reg
}

// changing has something be done to the outcome of each check.
func (r *reconciler) changing(w *fixture, change func(*check.Outcome)) {
	r.validation.check.checker = outcomes{checks{w}, change}
}

// blur makes what a runner left be no result.
func (w *fixture) blur(name string) {
	pods := w.pods[w.jobs[actionJobName(w.get(name))].UID]
	pods[0].Status.ContainerStatuses[0].State.Terminated.Message = "segmentation fault"
}

// TestMetrics verifies the scraped metrics.
func TestMetrics(t *testing.T) {
	const scale = " scale_deployment"
	unmet := []v1alpha1.ConditionResult{{ConditionType: "x", Required: true, Evaluated: true}, {ConditionType: "y", ErrorMessage: "it is undefined"}}
	withPostConditions := func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.PostConditions = []v1alpha1.Condition{{Type: "x", Rego: "x", Required: true}, {Type: "y", Rego: "y"}}
	}
	for name, tc := range map[string]struct {
		reason string
		run    func(w *fixture, r *reconciler)
		want   map[string]string // empty is that there is none
	}{
		"Succeeds": {"with a rollback", func(w *fixture, r *reconciler) {
			w.create("a", "web", nil)
			w.look(r)
			w.now = w.now.Add(3 * time.Second)
			w.end("a", action.CodeOK)
			w.look(r)
			w.now = w.now.Add(5 * time.Minute)
			w.look(r)
			w.now = w.now.Add(24 * time.Hour)
			w.look(r)
		}, map[string]string{
			"created_total": "1", "retention_deletions_total": "1", "action_execution_total" + scale + " succeeded": "1", "failures_total": "",
			"phase_duration_seconds executing": "3s in 1", "phase_duration_seconds rollback_ready": "300s in 1",
			"lifecycle_duration_seconds": "303s in 1", "rollback_prepared_total" + scale: "1",
			"job_creation_total created": "1", "job_creation_duration_seconds": "0s in 1", "result_parse_failures_total": "",
		}},
		"PreConditions": {"each look at each condition", func(w *fixture, r *reconciler) {
			r.changing(w, func(out *check.Outcome) { out.Results.PreConditionResults = optional() })
			w.create("a", "web", nil)
			w.look(r)
		}, map[string]string{
			"condition_evaluations_total precondition passed": "4", "condition_evaluations_total precondition failed": "2", // planning anew asks again
			"condition_evaluations_total precondition error": "", "blocked_by_precondition_total" + scale: "",
		}},
		"Blocked": {"a required precondition does not hold", func(w *fixture, r *reconciler) {
			r.changing(w, func(out *check.Outcome) {
				out.Failed = &execution.Failure{Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailPreConditionFailed, Message: "no"}
			})
			w.create("a", "web", nil)
			w.look(r)
		}, map[string]string{
			"blocked_by_precondition_total" + scale: "1", "failed_by_postcondition_total" + scale: "",
			"failures_total precondition_failed validation_error": "1",
		}},
		"Unmet": {"required postcondition, and another cannot be evaluated", func(w *fixture, r *reconciler) {
			w.post = unmet
			w.create("a", "web", withPostConditions)
			w.look(r)
			w.end("a", action.CodeOK)
			w.look(r)
		}, map[string]string{
			"failed_by_postcondition_total" + scale: "1", "blocked_by_precondition_total" + scale: "", "failures_total postcondition_failed postcondition_failed": "",
			"condition_evaluations_total postcondition failed": "1", "condition_evaluations_total postcondition error": "1",
		}},
		"UnmetAndOver": {"it is counted once, and as a failure when it has ended", func(w *fixture, r *reconciler) {
			w.post = unmet
			w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { withPostConditions(ke); ke.Spec.Finalize = true })
			w.look(r)
			w.end("a", action.CodeOK)
			w.look(r)
		}, map[string]string{
			"failed_by_postcondition_total" + scale: "1", "failures_total postcondition_failed postcondition_failed": "1",
		}},
		"DryRun": {"as long as it took itself", func(w *fixture, r *reconciler) {
			r.changing(w, func(out *check.Outcome) {
				out.TrialTook, out.Results.DryRunResults = 2*time.Second, &v1alpha1.DryRunResults{Performed: true, Success: true}
			})
			w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.DryRunMode = v1alpha1.DryRunOnly })
			w.look(r)
		}, map[string]string{
			"dryrun_validation_duration_seconds" + scale: "2s in 1", "dryrun_validation_total" + scale + " success": "1",
		}},
		"Refused": {"the Jobs cannot be made, and are tried again", func(w *fixture, r *reconciler) {
			w.fault = func(what string, before bool) error {
				if what == "job" && before {
					return errors.New("no")
				}
				return nil
			}
			w.create("a", "web", nil)
			for range 2 {
				_, _ = w.reconcile(r, "a")
			}
		}, map[string]string{"job_creation_total created": "", "job_creation_total failed": "2", "job_creation_duration_seconds": "0s in 2"}},
		"Unreadable": {"the runner left no result", func(w *fixture, r *reconciler) {
			w.create("a", "web", nil)
			w.look(r)
			w.end("a", action.CodeTransient)
			w.blur("a")
			w.again("status failed")
			w.look(r)
		}, map[string]string{"result_parse_failures_total": "1"}},
		"Approved": {"after a minute", func(w *fixture, r *reconciler) {
			w.approval = true
			w.create("a", "web", nil)
			w.look(r)
			w.now = w.now.Add(time.Minute)
			w.edit("a", approve("bob"))
			w.look(r)
		}, map[string]string{"approval_decisions_total approved": "1", "approval_wait_seconds": "60s in 1", "approvals_pending": ""}},
		"Expired": {"nobody decided", func(w *fixture, r *reconciler) {
			w.approval = true
			w.create("a", "web", nil)
			w.look(r)
			w.now = w.now.Add(2 * time.Hour)
			w.look(r)
		}, map[string]string{"approval_decisions_total expired": "1", "approval_wait_seconds": "", "approvals_pending": ""}},
		"Queued": {"two on one target", func(w *fixture, r *reconciler) {
			w.create("first", "web", nil)
			_, _ = w.reconcile(r, "first")
			w.create("a", "web", nil)
			w.look(r)
			w.now = w.now.Add(time.Minute)
			w.end("first", action.CodeOK)
			_, _ = w.reconcile(r, "first")
			w.look(r)
		}, map[string]string{"queue_duration_seconds": "60s in 1", "start_blocked_total target_busy": "1", "start_blocked_total budget_exceeded": ""}},
		"QueuedForTwo": {"for its turn, and then for a Job that cannot be made", func(w *fixture, r *reconciler) {
			w.create("first", "web", nil)
			_, _ = w.reconcile(r, "first")
			w.create("a", "web", nil)
			w.look(r)
			w.now = w.now.Add(time.Minute)
			w.end("first", action.CodeOK)
			_, _ = w.reconcile(r, "first")
			w.fault = func(what string, before bool) error {
				if what == "job" && before {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "x", errors.New("exceeded quota"))
				}
				return nil
			}
			w.look(r)
			w.fault = func(string, bool) error { return nil }
			w.now = w.now.Add(time.Minute)
			w.look(r)
		}, map[string]string{"queue_duration_seconds": "120s in 1"}},
		"NoRoom": {"the budget is used up", func(w *fixture, r *reconciler) {
			r.slots.gate, _ = execution.NewGate(execution.GateConfig{MaxConcurrent: 1})
			w.create("first", "web", nil)
			_, _ = w.reconcile(r, "first")
			w.create("a", "api", nil)
			w.look(r)
		}, map[string]string{"queue_duration_seconds": "", "start_blocked_total budget_exceeded": "1", "start_blocked_total target_busy": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // in which nothing takes any time
				w := newFixture()
				r, reg := w.counted(Config{})
				tc.run(w, r)
				wantSeries(t, reg, tc.reason, tc.want)
			})
		})
	}
}

// wantSeries checks some series.
func wantSeries(t *testing.T, reg prometheus.Gatherer, reason string, want map[string]string) {
	t.Helper()
	all, got := scraped(t, reg), map[string]string{}
	for series := range want {
		got[series] = all[series]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s:\n%s\nof %v", reason, diff, all)
	}
}

// TestPhaseGauges verifies the gauges of active executions at a scrape without any recent change.
func TestPhaseGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		w.now, w.approval = time.Now(), true
		r, reg := w.counted(Config{})
		wantSeries(t, reg, "nothing is there", map[string]string{"approvals_pending": "", "active waiting_approval": "", "phase_max_age_seconds waiting_approval": ""})
		for _, name := range []string{"a", "b"} {
			w.now = time.Now()
			w.create(name, "web", nil)
			w.must(t, r, name)
			time.Sleep(30 * time.Second)
		}
		wantSeries(t, reg, "the older one counts", map[string]string{"approvals_pending": "2", "active waiting_approval": "2", "phase_max_age_seconds waiting_approval": "60", "active executing": ""})
		w.now = time.Now()
		w.edit("a", approve("bob"))
		w.must(t, r, "a")
		time.Sleep(10 * time.Second)
		wantSeries(t, reg, "a goes on", map[string]string{
			"approvals_pending": "1", "active waiting_approval": "1", "phase_max_age_seconds waiting_approval": "40",
			"active executing": "1", "phase_max_age_seconds executing": "10",
		})
		w.now = time.Now()
		w.end("a", action.CodeOK)
		w.must(t, r, "a")
		wantSeries(t, reg, "and has ended", map[string]string{"active executing": "", "phase_max_age_seconds executing": "", "active rollback_ready": "1"})
	})
}
