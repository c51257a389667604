package operator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// forgetful are an audit that cannot be written.
type forgetful struct{}

// Sync says so.
func (forgetful) Sync(context.Context, *v1alpha1.KubernetesExecution) (bool, error) {
	return false, errors.New("the database is away")
}

// RecordDeletion says so.
func (forgetful) RecordDeletion(context.Context, *v1alpha1.KubernetesExecution, time.Time, bool) error {
	return errors.New("the database is away")
}

// audit looks once as the auditor does.
func (w *fixture) audit(t *testing.T, r *reconciler, by auditor) reconcile.Result {
	t.Helper()
	a := &auditReconciler{executions: storedExecutions{w}, auditor: by, log: r.log, now: r.now}
	a.begin.Do(func() {}) // it began long ago
	res, err := a.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestRetention verifies that an ended execution is kept exactly for its retention period.
func TestRetention(t *testing.T) {
	fails := func(t *testing.T, w *fixture, r *reconciler) {
		t.Helper()
		w.end("a", action.CodeForbidden)
		w.must(t, r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailRBACDenied)
	}
	succeeds := func(t *testing.T, w *fixture, r *reconciler) {
		t.Helper()
		w.end("a", action.CodeOK)
		w.must(t, r, "a")
		w.now = w.now.Add(r.cfg.RollbackWindow) // for which it has not ended
		w.must(t, r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseCompleted, "")
	}
	for name, tc := range map[string]struct {
		reason  string
		cfg     Config
		own     *int32
		ends    func(t *testing.T, w *fixture, r *reconciler)
		audited bool
		want    time.Duration
	}{
		"Default":     {"a day", Config{}, nil, succeeds, false, 24 * time.Hour},
		"Failed":      {"however it ended", Config{}, nil, fails, false, 24 * time.Hour},
		"Configured":  {"the controller was told", Config{TTL: time.Hour}, nil, succeeds, false, time.Hour},
		"Own":         {"it says so itself", Config{TTL: time.Hour}, new(int32(90)), succeeds, false, 90 * time.Second},
		"OwnIsLonger": {"likewise", Config{TTL: time.Hour}, new(int32(7200)), fails, false, 2 * time.Hour},
		"Audited":     {"it is in the audit", Config{Audited: true}, new(int32(90)), succeeds, true, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			r := w.newReconciler(tc.cfg)
			w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.TTLSecondsAfterFinished = tc.own })
			w.must(t, r, "a")
			tc.ends(t, w, r)
			if tc.audited {
				w.audit(t, r, recorder{})
			}
			ended := w.now
			w.now = ended.Add(tc.want - time.Second)
			res, err := w.reconcile(r, "a")
			if err != nil || w.get("a") == nil || res.RequeueAfter != time.Second {
				t.Fatalf("%s: a second before, there is %v, and it is looked at again after %s: %v", tc.reason, w.get("a"), res.RequeueAfter, err)
			}
			w.now = ended.Add(-time.Hour) // a clock that was set back
			if w.must(t, r, "a"); w.get("a") == nil {
				t.Fatalf("%s: it is gone before its time", tc.reason)
			}
			w.now = ended.Add(tc.want)
			w.must(t, w.newReconciler(tc.cfg), "a") // which has to know of nothing
			if w.get("a") != nil {
				t.Errorf("%s: it is still there", tc.reason)
			}
		})
	}
}

// TestAtOnce verifies that an execution may request no retention.
func TestAtOnce(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.TTLSecondsAfterFinished, ke.Spec.DryRunMode = new(int32(0)), v1alpha1.DryRunOnly
	})
	w.must(t, r, "a")
	if w.get("a") != nil {
		t.Errorf("it is %s", w.get("a").Status.Phase)
	}
	if got := testutil.ToFloat64(r.metrics.deleted); got != 1 {
		t.Errorf("%v were counted", got)
	}
}

// TestKeptUntilAudited verifies that an execution is not deleted before its audit is complete, and
// that a failed deletion is retried.
func TestKeptUntilAudited(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{Audited: true})
	w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.TTLSecondsAfterFinished = new(int32(60)) })
	w.must(t, r, "a")
	w.end("a", action.CodeForbidden)
	for range 3 {
		w.must(t, r, "a")
		if res := w.audit(t, r, forgetful{}); res.RequeueAfter != auditRetryDelay {
			t.Errorf("the audit is tried again after %s", res.RequeueAfter)
		}
		if ke := w.get("a"); ke == nil || isAuditRecorded(ke) || len(ke.Finalizers) != 1 {
			t.Fatalf("it is in no audit, and goes: %+v", ke)
		}
		w.now = w.now.Add(240 * time.Hour)
	}
	w.audit(t, r, recorder{})
	w.once("delete", true, func() error { return errNoAnswer })
	if _, err := w.reconcile(r, "a"); !errors.Is(err, errNoAnswer) || w.get("a") == nil {
		t.Fatalf("that it cannot be deleted is %v", err)
	}
	if got := testutil.ToFloat64(r.metrics.deleted); got != 0 {
		t.Errorf("%v were counted that are there", got)
	}
	w.must(t, r, "a")
	if w.get("a") != nil {
		t.Error("it is still there")
	}
	if got := testutil.ToFloat64(r.metrics.deleted); got != 1 {
		t.Errorf("%v were counted", got)
	}
}

// TestDeletedWithoutAnAudit verifies how long a deletion waits for an audit that cannot be written.
func TestDeletedWithoutAnAudit(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		after  time.Duration
		by     auditor
		held   bool
	}{
		"AtOnce":  {"it may be written soon", 0, forgetful{}, true},
		"InTime":  {"likewise", 5 * time.Minute, forgetful{}, true},
		"GivenUp": {"somebody wants it gone", 5*time.Minute + time.Second, forgetful{}, false},
		"Written": {"there is nothing to wait for", 0, recorder{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			r := w.newReconciler(Config{Audited: true})
			w.create("a", "web", nil)
			w.must(t, r, "a")
			w.end("a", action.CodeForbidden)
			w.must(t, r, "a")
			w.now = w.now.Add(time.Hour) // only the time since it was deleted counts
			w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.DeletionTimestamp = new(metav1.NewTime(w.now)) })
			w.must(t, r, "a")
			w.now = w.now.Add(tc.after)
			res := w.audit(t, r, tc.by)
			if held := w.get("a") != nil; held != tc.held {
				t.Fatalf("%s: it is held: %t", tc.reason, held)
			}
			if tc.held && res.RequeueAfter != auditRetryDelay {
				t.Errorf("%s: it is looked at again after %s", tc.reason, res.RequeueAfter)
			}
		})
	}
}
