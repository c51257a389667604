package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A register is an audit that says what it was told.
type register struct {
	recorder

	away error
	told []string
}

// RecordDeletion notes who went, in which phase, and whether that was seen.
func (r *register) RecordDeletion(_ context.Context, ke *v1alpha1.KubernetesExecution, at time.Time, unseen bool) error {
	if r.away != nil {
		return r.away
	}
	r.told = append(r.told, fmt.Sprintf("%s %s %s %t", ke.UID, ke.Status.Phase, at.Format(time.TimeOnly), unseen))
	return nil
}

// A leaving is an auditor that hears what goes.
type leaving struct {
	*testing.T
	*fixture

	book *register
	a    *auditReconciler
	q    workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newLeaving(t *testing.T) *leaving {
	t.Helper()
	w, book := newFixture(), &register{}
	l := &leaving{T: t, fixture: w, book: book, q: workqueue.NewTypedRateLimitingQueue(newRateLimiter())}
	t.Cleanup(l.q.ShutDown)
	l.a = &auditReconciler{executions: storedExecutions{w}, auditor: book, log: slog.New(slog.DiscardHandler), now: func() time.Time { return w.now }}
	return l
}

// goes has an execution be deleted, which the host cluster tells or not.
func (l *leaving) goes(name string, told bool) {
	l.Helper()
	ke := l.get(name)
	l.gone(ke)
	l.tells(ke, told)
}

func (l *leaving) tells(ke *v1alpha1.KubernetesExecution, told bool) {
	l.Helper()
	l.a.deleted.newDeletionHandler(l.a.log, l.a.now).Delete(l.Context(), event.DeleteEvent{Object: ke, DeleteStateUnknown: !told}, l.q)
}

// looks does what is to be done, and gives when that is to be done again.
func (l *leaving) looks() time.Duration {
	l.Helper()
	var again time.Duration
	for l.q.Len() > 0 {
		req, _ := l.q.Get()
		res, err := l.a.Reconcile(l.Context(), req)
		if err != nil {
			l.Fatal(err)
		}
		again = res.RequeueAfter
		l.q.Done(req)
	}
	return again
}

func (l *leaving) wantTold(want ...string) {
	l.Helper()
	if diff := cmp.Diff(want, l.book.told); diff != "" {
		l.Errorf("what the audit was told (-want +got):\n%s", diff)
	}
}

// TestDeletedUnheld verifies that the audit records the deletion of executions without a finalizer
// in every phase.
func TestDeletedUnheld(t *testing.T) {
	l := newLeaving(t)
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseNew, v1alpha1.PhaseWaitingApproval, v1alpha1.PhaseFailed} {
		l.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Status.Phase, ke.UID = phase, types.UID("uid-"+phase) })
		l.goes("a", phase != v1alpha1.PhaseFailed)
		if again := l.looks(); again != 0 {
			t.Errorf("one that is gone in phase %q is looked at again after %s", phase, again)
		}
	}
	l.wantTold("uid-  03:00:00 false", "uid-waiting_approval waiting_approval 03:00:00 false", "uid-failed failed 03:00:00 true")
	if l.a.deleted.count != 0 || len(l.a.deleted.byName) != 0 {
		t.Errorf("%d are remembered that are in the audit", l.a.deleted.count)
	}
}

// TestFollowedUnseen verifies that the audit records a deletion that the watch delivers as an
// update to another UID of the same name.
func TestFollowedUnseen(t *testing.T) {
	l := newLeaving(t)
	as := func(uid types.UID, phase v1alpha1.Phase) *v1alpha1.KubernetesExecution {
		l.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.UID, ke.Status.Phase = uid, phase })
		return l.get("a")
	}
	first, later, second := as("first", v1alpha1.PhaseNew), as("first", v1alpha1.PhaseWaitingApproval), as("second", v1alpha1.PhaseNew)
	h := l.a.deleted.newDeletionHandler(l.a.log, l.a.now)
	h.Update(l.Context(), event.UpdateEvent{ObjectOld: first, ObjectNew: later}, l.q)
	if l.looks(); len(l.book.told) > 0 {
		t.Errorf("one that goes on is told to be gone: %q", l.book.told)
	}
	h.Update(l.Context(), event.UpdateEvent{ObjectOld: later, ObjectNew: second}, l.q)
	l.looks()
	l.wantTold("first waiting_approval 03:00:00 true")
}

// TestDeletedWhileTheAuditIsAway verifies that a deleted execution and its deletion time are kept
// until the audit is written. Another execution of the same name is recorded in the meantime.
func TestDeletedWhileTheAuditIsAway(t *testing.T) {
	l := newLeaving(t)
	l.book.away = errors.New("the database is away")
	waiting := func(uid types.UID) func(*v1alpha1.KubernetesExecution) {
		return func(ke *v1alpha1.KubernetesExecution) { ke.UID, ke.Status.Phase = uid, v1alpha1.PhaseWaitingApproval }
	}
	l.create("a", "web", waiting("first"))
	l.goes("a", true)
	l.now = l.now.Add(time.Minute)
	l.create("a", "web", waiting("second"))
	l.goes("a", true)
	l.create("a", "web", func(ke *v1alpha1.KubernetesExecution) {
		ke.UID, ke.Status.Phase, ke.Finalizers = "third", v1alpha1.PhaseFailed, []string{v1alpha1.Finalizer}
	})
	for range 3 {
		if again := l.looks(); again != auditRetryDelay {
			t.Errorf("it is tried again after %s", again)
		}
		l.now = l.now.Add(time.Hour)
		l.q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "a"}})
	}
	if ke := l.get("a"); !isAuditRecorded(ke) || len(ke.Finalizers) > 0 {
		t.Errorf("one waits for the other: %+v", ke.Status.Conditions)
	}
	l.wantTold()
	l.book.away = nil
	if again := l.looks(); again != 0 {
		t.Errorf("it is looked at again after %s", again)
	}
	l.wantTold("first waiting_approval 03:00:00 false", "second waiting_approval 03:01:00 false")
}

// TestDepartedAreBounded verifies that the deletedCache is limited during an audit outage and has
// room again afterwards.
func TestDepartedAreBounded(t *testing.T) {
	l := newLeaving(t)
	one := func(n int) *v1alpha1.KubernetesExecution {
		l.create("a", "web", nil)
		ke := l.get("a")
		ke.Name, ke.UID = fmt.Sprintf("ke-%d", n), types.UID(fmt.Sprintf("uid-%d", n))
		return ke
	}
	for n := range maxDeleted + 1 {
		l.tells(one(n), true)
	}
	last := types.UID(fmt.Sprintf("uid-%d", maxDeleted))
	has := func(n int) bool {
		ke := one(n)
		return l.a.deleted.hasExecution(nameOf(ke), ke.UID)
	}
	if l.q.Len() != maxDeleted || !has(maxDeleted-1) || has(maxDeleted) {
		t.Fatalf("%d wait, and of the last: %t", l.q.Len(), has(maxDeleted))
	}
	l.looks()
	if len(l.book.told) != maxDeleted || slices.ContainsFunc(l.book.told, func(s string) bool { return s[:len(last)] == string(last) }) {
		t.Errorf("the audit was told of %d", len(l.book.told))
	}
	l.tells(one(maxDeleted), true)
	l.looks()
	if len(l.book.told) != maxDeleted+1 || l.a.deleted.count != 0 {
		t.Errorf("the audit was told of %d, and %d are remembered", len(l.book.told), l.a.deleted.count)
	}
}

// liveUIDs are the executions that the host cluster has.
type liveUIDs struct {
	uids map[string]types.UID
	err  error
}

func (l liveUIDs) UID(_ context.Context, name types.NamespacedName) (types.UID, error) {
	return l.uids[name.Name], l.err
}

// catching up is a cache that is behind what was written.
type catchingUp struct{ storedExecutions }

func (catchingUp) Get(_ context.Context, name types.NamespacedName) (*v1alpha1.KubernetesExecution, error) {
	return nil, apierrors.NewConflict(schema.GroupResource{}, name.Name, errors.New("it has not come back yet"))
}

// TestWhoIsThere verifies that an execution counts as lost only if neither the cache nor the host
// cluster has it and its deletion was not observed.
func TestWhoIsThere(t *testing.T) {
	away := errors.New("nobody answers")
	for name, tc := range map[string]struct {
		reason string
		with   func(w *fixture, s *deletionSweeper)
		want   bool
		err    error
	}{
		"Nowhere": {"it is gone", func(*fixture, *deletionSweeper) {}, false, nil},
		"Cached":  {"its end will be told", func(w *fixture, _ *deletionSweeper) { w.create("a", "web", nil) }, true, nil},
		"Live":    {"the cache has not seen it yet", func(_ *fixture, s *deletionSweeper) { s.live = liveUIDs{map[string]types.UID{"a": "uid-a"}, nil} }, true, nil},
		"Namesake": {"another has its name", func(w *fixture, s *deletionSweeper) {
			w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.UID = "other" })
			s.live = liveUIDs{map[string]types.UID{"a": "other"}, nil}
		}, false, nil},
		"Told": {"its last words are on the way", func(_ *fixture, s *deletionSweeper) {
			ke := &v1alpha1.KubernetesExecution{}
			ke.Namespace, ke.Name, ke.UID = namespace, "a", "uid-a"
			s.deleted.addExecution(deletedExecution{ke: ke})
		}, true, nil},
		"Behind":   {"it was written just now", func(w *fixture, s *deletionSweeper) { s.executions = catchingUp{storedExecutions{w}} }, true, nil},
		"NoAnswer": {"nothing is guessed", func(_ *fixture, s *deletionSweeper) { s.live = liveUIDs{nil, away} }, false, away},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			s := &deletionSweeper{executions: storedExecutions{w}, live: liveUIDs{}, deleted: &deletedCache{}}
			tc.with(w, s)
			got, err := s.existsOrDeletionSeen(t.Context(), types.NamespacedName{Namespace: namespace, Name: "a"}, "uid-a")
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s: there %t, %v", tc.reason, got, err)
			}
		})
	}
}

// TestAuditWaitsForTheEndOfDeleted verifies that the audit keeps a deleted execution whose action
// did not stop until the operator has had time to write its end.
func TestAuditWaitsForTheEndOfDeleted(t *testing.T) {
	w := newFixture()
	w.create("a", "web", nil)
	w.look(w.newReconciler(Config{Audited: true}))
	w.remove("a")
	a := &auditReconciler{executions: storedExecutions{w}, auditor: recorder{}, log: slog.New(slog.DiscardHandler), now: func() time.Time { return w.now }}
	a.begin.Do(func() {})
	for _, tc := range []struct {
		deleted, began time.Duration // before now
		kept           bool
	}{
		{deletionGracePeriod, deletionGracePeriod, true},
		{deletionGracePeriod + deletedEndDelay, time.Hour, false},
		{time.Hour, 0, true},
		{time.Hour, deletionGracePeriod + deletedEndDelay, false},
	} {
		w.now = w.get("a").DeletionTimestamp.Add(tc.deleted)
		a.begunAt = w.now.Add(-tc.began)
		fault := w.fault
		w.fault = func(string, bool) error { return errCrash } // it would remove the finalizer
		_, err := a.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "a"}})
		if w.fault = fault; (err == nil) != tc.kept {
			t.Errorf("deleted %s ago, begun %s ago: the audit keeps it: %t, want %t", tc.deleted, tc.began, err == nil, tc.kept)
		}
	}
}
