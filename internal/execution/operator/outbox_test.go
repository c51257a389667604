package operator

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// A sink is one that a test answers for.
type sink struct {
	got   []changeevent.ChangeEvent
	class changeevent.Class // what it answers; empty is that it takes the event
	mute  bool              // it does not answer
}

func (s *sink) SendChangeEvent(_ context.Context, e changeevent.ChangeEvent) {
	s.got = append(s.got, e)
	if !s.mute {
		e.OnDelivery(changeevent.Delivery{ID: e.ID, Class: s.class})
	}
}

func (s *sink) Close() error { return nil }

// actions are those of what a sink was sent.
func (s *sink) actions() (list []string) {
	for _, e := range s.got {
		list = append(list, e.Action)
	}
	return list
}

// sending has an operator send change events to sinks.
func (w *fixture) sending(t *testing.T, r *reconciler, sinks map[string]*sink) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewRegistry()
	deps := OutboxDeps{
		Wake: func(types.NamespacedName) {}, Registerer: reg, Now: func() time.Time { return w.now },
		Event: func(c execution.Change) changeevent.ChangeEvent {
			return changeevent.ChangeEvent{Action: string(c.Action), ID: c.UID + string(c.Action), Timestamp: c.At, Reason: c.Message, DryRun: c.DryRun, Details: map[string]string{"agent": c.Agent}}
		},
	}
	for name, s := range sinks {
		one := Sink{Name: name}
		if s != nil {
			one.Client = s
		}
		deps.Sinks = append(deps.Sinks, one)
	}
	slices.SortFunc(deps.Sinks, func(a, b Sink) int { return len(a.Name) - len(b.Name) })
	var err error
	if r.writer.outbox, err = NewOutbox(OutboxConfig{}, deps); err != nil {
		t.Fatal(err)
	}
	return reg
}

func wantActions(t *testing.T, s *sink, want ...execution.ChangeAction) {
	t.Helper()
	var list []string
	for _, a := range want {
		list = append(list, string(a))
	}
	if diff := cmp.Diff(list, s.actions()); diff != "" {
		t.Errorf("the sink was sent, -want +got:\n%s", diff)
	}
}

// TestEventOutlivesTheController verifies that an event is delivered if the controller was killed
// between the status write and the answer of the sink. Events whose acknowledgement is written are
// not sent again.
func TestEventOutlivesTheController(t *testing.T) {
	w := newFixture()
	w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.RequestedByAgent = "claude-code 2.1" })
	down, up := &sink{mute: true}, &sink{}
	r := w.newReconciler(Config{})
	w.sending(t, r, map[string]*sink{"s": down})
	w.look(r)
	if got := w.get("a").Status.PendingChangeEvents; len(got) != 1 || got[0].Action != string(execution.ChangeStarted) || !slices.Equal(got[0].Sinks, []string{"s"}) {
		t.Fatalf("the status has the events %+v, want the start", got)
	}
	r = w.newReconciler(Config{DryRun: true}) // the first was killed
	w.sending(t, r, map[string]*sink{"s": up})
	w.look(r)
	wantActions(t, up, execution.ChangeStarted)
	w.end("a", action.CodeOK)
	w.look(r)
	wantActions(t, up, execution.ChangeStarted, execution.ChangeSucceeded)
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Finalize = true })
	w.look(r)
	if got := w.get("a"); len(got.Status.PendingChangeEvents) != 0 || len(got.Finalizers) != 0 {
		t.Errorf("the events %+v and finalizers %q are left", got.Status.PendingChangeEvents, got.Finalizers)
	}
	for _, e := range up.got {
		if e.DryRun {
			t.Errorf("%s is reported as a dry run", e.Action)
		}
		if got := e.Details["agent"]; got != "claude-code 2.1" {
			t.Errorf("%s names the assistant %q", e.Action, got)
		}
	}
	next := &sink{}
	r = w.newReconciler(Config{})
	w.sending(t, r, map[string]*sink{"s": next})
	w.look(r)
	wantActions(t, next)
}

// TestSinksAreSentEventsInOrder verifies that a failing sink receives all events later in order and
// does not delay other sinks.
func TestSinksAreSentEventsInOrder(t *testing.T) {
	w := newFixture()
	w.create("a", "web", nil)
	bad, good := &sink{class: changeevent.ClassServerError}, &sink{}
	r := w.newReconciler(Config{})
	w.sending(t, r, map[string]*sink{"bad": bad, "good": good})
	w.look(r)
	w.end("a", action.CodeOK)
	w.look(r)
	wantActions(t, good, execution.ChangeStarted, execution.ChangeSucceeded)
	for _, e := range w.get("a").Status.PendingChangeEvents {
		if !slices.Contains(e.Sinks, "bad") {
			t.Errorf("%s is no longer kept for the sink that failed: %q", e.Action, e.Sinks)
		}
	}
	bad.got, bad.class = nil, ""
	w.now = w.now.Add(time.Minute)
	w.look(r)
	wantActions(t, bad, execution.ChangeStarted, execution.ChangeSucceeded)
	wantActions(t, good, execution.ChangeStarted, execution.ChangeSucceeded)
}

// TestNoSinkNoEvents verifies that no events are stored without a sink.
func TestNoSinkNoEvents(t *testing.T) {
	w := newFixture()
	w.create("a", "web", nil)
	r := w.newReconciler(Config{})
	w.sending(t, r, nil)
	w.look(r)
	w.end("a", action.CodeOK)
	w.look(r)
	if got := w.get("a"); len(got.Status.PendingChangeEvents) != 0 || len(got.Finalizers) != 0 {
		t.Errorf("the events %+v and finalizers %q are stored", got.Status.PendingChangeEvents, got.Finalizers)
	}
}

// TestUndeliveredEventsExpire verifies that an execution is kept for undelivered events for 12
// hours, and that dropped events are counted.
func TestUndeliveredEventsExpire(t *testing.T) {
	w := newFixture()
	w.window = 0
	w.create("a", "web", nil)
	r := w.newReconciler(Config{TTL: time.Minute})
	reg := w.sending(t, r, map[string]*sink{"s": nil})
	w.look(r)
	w.end("a", action.CodeOK)
	w.look(r)
	w.now = w.now.Add(11 * time.Hour)
	w.look(r)
	got := w.get("a")
	if got == nil || len(got.Status.PendingChangeEvents) != 2 || len(got.Finalizers) != 1 {
		t.Fatalf("after 11 hours there is %+v, want it held with both events", got)
	}
	w.now = w.now.Add(2 * time.Hour)
	w.look(r)
	w.look(r)
	if got := w.get("a"); got != nil {
		t.Errorf("after 13 hours there is %+v", got.Status)
	}
	if n := value(t, reg, "kubernetesexecution_change_events_undeliverable_total", "expired"); n != 2 {
		t.Errorf("%v events are counted as expired, want 2", n)
	}
}

// TestDeletedWithUndeliveredEvents verifies that a deletion waits at most five minutes for sinks,
// and that the process continues to send the events.
func TestDeletedWithUndeliveredEvents(t *testing.T) {
	w := newFixture()
	w.create("a", "web", nil)
	s := &sink{class: changeevent.ClassConnection}
	r := w.newReconciler(Config{})
	w.sending(t, r, map[string]*sink{"s": s})
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
	w.look(r)
	w.now = w.now.Add(3 * time.Second)
	w.look(r) // it is held from now on
	w.remove("a")
	w.look(r)
	if w.get("a") == nil {
		t.Fatal("it is gone with an event that nobody has taken")
	}
	w.now = w.now.Add(6 * time.Minute)
	w.look(r)
	if w.get("a") != nil {
		t.Fatal("it is held for longer than five minutes")
	}
	s.got, s.class = nil, ""
	w.now = w.now.Add(6 * time.Minute)
	w.look(r)
	wantActions(t, s, execution.ChangeFailed)
}

// TestActionDeletedWithoutAudit verifies that the end of an action is sent without an audit, too, if its
// execution is deleted at once and the controller is killed.
func TestActionDeletedWithoutAudit(t *testing.T) {
	w := newFixture()
	w.create("a", "web", nil)
	r := w.newReconciler(Config{})
	w.sending(t, r, map[string]*sink{"s": {mute: true}})
	w.look(r)
	w.remove("a")
	s := &sink{}
	r = w.newReconciler(Config{}) // the first was killed
	w.sending(t, r, map[string]*sink{"s": s})
	w.look(r) // it cancels the Job, which has no Pod yet
	wantActions(t, s, execution.ChangeStarted, execution.ChangeFailed)
	if got := w.get("a"); got != nil {
		t.Errorf("it is left with the events %+v and the finalizers %q", got.Status.PendingChangeEvents, got.Finalizers)
	}
}

// TestDeletedActionThatDoesNotStop verifies that an end is sent for an action that does not stop
// after its execution was deleted, and that its Job is deleted.
func TestDeletedActionThatDoesNotStop(t *testing.T) {
	w := newFixture()
	w.create("a", "web", nil)
	s := &sink{}
	r := w.newReconciler(Config{})
	w.sending(t, r, map[string]*sink{"s": s})
	w.look(r)
	j := w.jobs[actionJobName(w.get("a"))]
	w.pods[j.UID] = []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace, CreationTimestamp: metav1.NewTime(w.now)},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: job.Container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now)}},
		}}},
	}}
	w.remove("a")
	w.look(r)
	wantActions(t, s, execution.ChangeStarted)
	w.now = w.now.Add(deletionGracePeriod)
	w.look(r)
	wantActions(t, s, execution.ChangeStarted, execution.ChangeFailed)
	if w.get("a") != nil || len(w.jobs) != 0 {
		t.Errorf("left are the execution %+v and %d Jobs", w.get("a"), len(w.jobs))
	}
}

// TestRejectedEventIsDropped verifies that a rejected event is counted and does not delay later
// ones.
func TestRejectedEventIsDropped(t *testing.T) {
	w := newFixture()
	w.create("a", "web", nil)
	s := &sink{class: changeevent.ClassClientError}
	r := w.newReconciler(Config{})
	reg := w.sending(t, r, map[string]*sink{"s": s})
	w.look(r)
	s.class = ""
	w.end("a", action.CodeOK)
	w.look(r)
	wantActions(t, s, execution.ChangeStarted, execution.ChangeSucceeded)
	if n := value(t, reg, "kubernetesexecution_change_events_undeliverable_total", "client_error"); n != 1 {
		t.Errorf("%v events are counted as rejected, want 1", n)
	}
}

// TestDrainStoresAnswers verifies that an event acknowledged during shutdown is not sent again by
// the next process.
func TestDrainStoresAnswers(t *testing.T) {
	w := newFixture()
	w.create("a", "web", nil)
	slow := &sink{mute: true}
	r := w.newReconciler(Config{})
	w.sending(t, r, map[string]*sink{"s": slow})
	w.look(r)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go slow.got[0].OnDelivery(changeevent.Delivery{})
	if err := r.writer.drainOutboxOnStop(ctx); err != nil {
		t.Fatal(err)
	}
	if got := w.get("a").Status.PendingChangeEvents; len(got) != 0 {
		t.Errorf("%+v is left", got)
	}
}

// value is that of a counter by its label error.
func value(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s{error=%q}", name, label)
	return 0
}

// TestWritesForEvents verifies that an answering sink costs one additional write per execution, and
// without an audit two more for the finalizer, which the audit needs anyway.
func TestWritesForEvents(t *testing.T) {
	writes := func(sinks map[string]*sink) int {
		w := newFixture()
		w.approval = true
		w.create("a", "web", nil)
		r := w.newReconciler(Config{})
		w.sending(t, r, sinks)
		w.look(r)
		w.edit("a", approve("bob"))
		w.look(r)
		w.end("a", action.CodeOK)
		w.look(r)
		w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Finalize = true })
		w.look(r)
		if got := w.get("a"); got.Status.Phase != v1alpha1.PhaseCompleted || len(got.Status.PendingChangeEvents) != 0 {
			t.Fatalf("it is %s with the events %+v", got.Status.Phase, got.Status.PendingChangeEvents)
		}
		return len(w.writes)
	}
	without, with := writes(nil), writes(map[string]*sink{"s": {}})
	if with > without+3 {
		t.Errorf("there are %d writes with a sink, and %d without", with, without)
	}
}
