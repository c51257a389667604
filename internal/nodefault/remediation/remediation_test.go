package remediation

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// TestRecords verifies that the records of an attempt have its fault and its result.
func TestRecords(t *testing.T) {
	t.Parallel()
	w := newFixture(t, Config{}, faults.RemedyReboot)
	w.settle()
	w.now = w.now.Add(time.Minute)
	w.accepted()
	w.now = w.now.Add(time.Minute)
	w.ends(metav1.ConditionFalse, v1alpha1.ReasonTimeout)
	w.step()
	type brief struct {
		Action, Source, Outcome, Agent, Code, Reason string
		At                                           string
	}
	var got []brief
	for _, h := range w.stored.History {
		got = append(got, brief{h.Action, h.Source, h.Outcome, h.Agent, strings.Join(h.ErrorCodes, ","), h.Reason, h.At.UTC().Format(time.TimeOnly)})
	}
	want := []brief{
		{"reboot-requested", "nvsentinel/fault-remediation", "succeeded", "agent", "XID-79", "", "03:00:00"},
		{"reboot-sent", "nvsentinel/janitor", "succeeded", "agent", "XID-79", "", "03:01:00"},
		{"reboot-failed", "nvsentinel/janitor", "failed", "agent", "XID-79", "RebootNode " + first + " failed: the janitor says Timeout", "03:02:00"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestToldInOrder verifies that a request is recorded before its result, also if the
// write of its record was lost.
func TestToldInOrder(t *testing.T) {
	t.Parallel()
	w := newFixture(t, Config{}, faults.RemedyReboot)
	w.step() // records the attempt
	w.lose = func() bool { return true }
	w.step()
	w.lose = func() bool { return false }
	w.accepted()
	w.settle()
	want := []string{"reboot-requested rebootnodes/" + first, "reboot-sent rebootnodes/" + first}
	if diff := cmp.Diff(want, w.told()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestNotSentAfterTheEnd verifies that a reboot whose result was recorded by an earlier
// version, without a record that it was sent, gets no such record later.
func TestNotSentAfterTheEnd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		labels map[string]string
		about  faults.NodeFaultStatus // the status with the record
		number string
		end    string
	}{
		"Executed":       {map[string]string{LabelSession: "s3ss10n0", LabelAttempt: "1"}, faults.NodeFaultStatus{NodeUID: "node-uid", Session: "s3ss10n0"}, "1", changeevent.ActionRebootExecuted},
		"Failed":         {map[string]string{LabelSession: "s3ss10n0", LabelAttempt: "1"}, faults.NodeFaultStatus{NodeUID: "node-uid", Session: "s3ss10n0"}, "1", changeevent.ActionRebootFailed},
		"SessionBefore":  {map[string]string{LabelSession: "bef0re00", LabelAttempt: "1"}, faults.NodeFaultStatus{NodeUID: "node-uid", Session: "bef0re00"}, "1", changeevent.ActionRebootExecuted},
		"ByHandExecuted": {nil, faults.NodeFaultStatus{NodeUID: "node-uid"}, "hand", changeevent.ActionRebootExecuted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, Config{}, faults.RemedyReboot)
			if tc.labels[LabelSession] == w.stored.Session {
				nodefault.AppendRecordOnceAndTrim(w.stored, nodefault.NewRecord(w.stored, sourceRemediation, changeevent.ActionRebootRequested, tc.number, w.now))
			}
			nodefault.AppendRecordOnceAndTrim(w.stored, nodefault.NewRecord(&tc.about, sourceJanitor, tc.end, tc.number, w.now))
			want := w.told()
			o := &v1alpha1.RebootNode{
				ObjectMeta: metav1.ObjectMeta{Name: "kept", UID: "hand", Labels: tc.labels, CreationTimestamp: metav1.NewTime(w.now)},
				Spec:       v1alpha1.NodeActionSpec{NodeName: w.node.Name},
			}
			if err := w.client.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			a := wrapActionObject(o)
			a.status.PreviousBootID = "boot-0"
			w.says(a, v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
			if tc.end == changeevent.ActionRebootExecuted {
				w.says(a, v1alpha1.ConditionNodeReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
			} else {
				w.says(a, v1alpha1.ConditionNodeReady, metav1.ConditionFalse, v1alpha1.ReasonTimeout)
			}
			if err := w.r.RecordJanitorActions(t.Context(), w.node, w.stored); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, w.told()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestPodsThatStay verifies that a reboot is forced if drains leave pods on purpose.
// Otherwise the janitor would wait for them until the deadline.
func TestPodsThatStay(t *testing.T) {
	t.Parallel()
	for _, stay := range []bool{false, true} {
		w := newFixture(t, Config{PodsStay: stay}, faults.RemedyReboot)
		w.settle()
		if got := w.current().spec.Force; got != stay {
			t.Errorf("with pods that stay: %t, it is asked for with force: %t", stay, got)
		}
	}
}

// TestMayNotAsk verifies that a request that cannot be created, for lack of permission,
// fails at its deadline. Otherwise the node would never be released.
func TestMayNotAsk(t *testing.T) {
	t.Parallel()
	group := v1alpha1.GroupVersion.WithResource(v1alpha1.ResourceReboot).GroupResource()
	for name, refusal := range map[string]error{
		"NoRight":      apierrors.NewForbidden(group, "", errors.New("no right")),
		"NoDefinition": apierrors.NewNotFound(group, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, Config{RebootAttempts: 1}, faults.RemedyReboot)
			inner, ok := w.client.(client.WithWatch)
			if !ok {
				t.Fatal("the client is another")
			}
			w.r.actions.client = interceptor.NewClient(inner, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refusal }})
			w.settle()
			if m := w.stored.Remediation; m.State != faults.RemedyRunning || !strings.Contains(m.Message, "cannot create RebootNode: "+refusal.Error()) {
				t.Errorf("it says %+v", m)
			}
			w.now = w.now.Add(time.Hour)
			w.settle()
			if m := w.stored.Remediation; m.State != faults.RemedyExhausted || w.r.BlocksRelease(w.stored) {
				t.Errorf("it says %+v", m)
			}
			if diff := cmp.Diff([]string{"reboot-failed rebootnodes/" + first, "support-required"}, w.told()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestTimesInOrder verifies that records within one second are in order, although objects
// have times in seconds.
func TestTimesInOrder(t *testing.T) {
	t.Parallel()
	w := newFixture(t, Config{}, faults.RemedyReboot)
	w.now = w.now.Add(434 * time.Millisecond)
	w.step()
	w.lose = func() bool { return true } // so that the time of the object is used
	w.step()
	w.lose = func() bool { return false }
	w.stored.History = []faults.Record{{Sequence: 1, Action: "drain-completed", At: metav1.NewMicroTime(w.now)}}
	w.stored.LastSequence = 1
	w.accepted()
	w.ends(metav1.ConditionFalse, v1alpha1.ReasonTimeout)
	w.step()
	if got := len(w.stored.History); got != 4 { // requested, executed, failed
		t.Fatalf("%d are told: %v", got, w.told())
	}
	last := w.now.Add(-time.Millisecond)
	for _, h := range w.stored.History {
		if !h.At.After(last) || h.At.Sub(w.now) > time.Second {
			t.Errorf("%s was at %s, after %s", h.Action, h.At, last)
		}
		last = h.At.Time
	}
}

// TestCancel verifies that Cancel deletes a request that has not started, and leaves a
// started one.
func TestCancel(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		act    func(w *fixture)
		left   int
	}{
		"Written":  {"nothing was asked for yet", func(w *fixture) { w.step() }, 0},
		"Asked":    {"the provider has not been asked", func(w *fixture) { w.settle() }, 0},
		"Waiting":  {"the provider has not begun, and would later", func(w *fixture) { w.settle(); w.sending() }, 0},
		"Accepted": {"the machine reboots: what happens to it is told", func(w *fixture) { w.settle(); w.accepted() }, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, Config{}, faults.RemedyReboot)
			tc.act(w)
			if err := w.r.Cancel(t.Context(), w.stored, "a person has uncordoned the node", w.now); err != nil {
				t.Fatal(err)
			}
			var left v1alpha1.RebootNodeList
			if err := w.client.List(t.Context(), &left); err != nil || len(left.Items) != tc.left {
				t.Errorf("%s: %d objects are left, %v", tc.reason, len(left.Items), err)
			}
			if m := w.stored.Remediation; m.State != faults.RemedyFailed || w.r.BlocksRelease(w.stored) || !strings.Contains(m.Message, "a person") {
				t.Errorf("%s: %+v", tc.reason, m)
			}
			if err := w.r.Cancel(t.Context(), w.stored, "again", w.now); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCancelOfAStaleObject verifies that Cancel does not delete a request that is accepted after it
// was read.
func TestCancelOfAStaleObject(t *testing.T) {
	t.Parallel()
	w := newFixture(t, Config{}, faults.RemedyReboot)
	w.settle()
	w.sending()
	inner, ok := w.client.(client.WithWatch)
	if !ok {
		t.Fatal("the client is another")
	}
	var once sync.Once
	get := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		err := c.Get(ctx, key, o, opts...)
		once.Do(w.accepted)
		return err
	}
	w.r.actions.client = interceptor.NewClient(inner, interceptor.Funcs{Get: get})
	if err := w.r.Cancel(t.Context(), w.stored, "a person has uncordoned the node", w.now); !apierrors.IsConflict(err) {
		t.Fatalf("got %v, want a conflict", err)
	}
	if err := w.r.Cancel(t.Context(), w.stored, "a person has uncordoned the node", w.now); err != nil {
		t.Fatal(err)
	}
	w.current() // fails if it was deleted
	if w.r.BlocksRelease(w.stored) {
		t.Errorf("it is %+v", w.stored.Remediation)
	}
}

type verifier func(name string) (Verdict, error)

func (v verifier) Verify(_ context.Context, _ *corev1.Node, name string) (Verdict, error) {
	return v(name)
}

// TestVerification verifies that a node that passes its test is released, and that one
// that fails is left to a person.
func TestVerification(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		verdict Verdict
		wait    time.Duration
		state   faults.RemedyState
		busy    bool
	}{
		"Runs":   {"it is not released meanwhile", Verdict{}, 0, faults.RemedyRunning, true},
		"Passes": {"it may be released", Verdict{Done: true, Passed: true}, 0, faults.RemedySucceeded, false},
		"Fails":  {"a person has to look, and nobody releases it before", Verdict{Done: true, Message: "no GPU"}, 0, faults.RemedyExhausted, true},
		"Slow":   {"a Job has five minutes, however long faults may stay", Verdict{}, 5 * time.Minute, faults.RemedyRunning, true},
		"Hangs":  {"as if it had failed", Verdict{}, time.Hour, faults.RemedyExhausted, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			try := verifier(func(name string) (Verdict, error) { asked = append(asked, name); return tc.verdict, nil })
			w := newFixture(t, Config{VerifyTimeout: 2 * time.Minute, Verifier: try}, faults.RemedyReboot)
			w.settle()
			w.accepted()
			w.boots()
			w.ends(metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
			w.settle()
			if len(asked) > 0 || !w.r.BlocksRelease(w.stored) {
				t.Errorf("it was tried out while the fault was there, or could have been released: %v", asked)
			}
			w.stored.HealthySince, w.stored.DesiredActions = &metav1.Time{Time: w.now}, nil
			w.settle()
			w.now = w.now.Add(tc.wait)
			w.settle()
			if m := w.stored.Remediation; m.State != tc.state || w.r.BlocksRelease(w.stored) != tc.busy {
				t.Errorf("%s: it is %q, busy %t: %q", tc.reason, m.State, w.r.BlocksRelease(w.stored), m.Message)
			}
			if len(asked) == 0 || asked[0] != "verify-s3ss10n0-1" {
				t.Errorf("asked for %v", asked)
			}
		})
	}
}

// TestReplacedBeforeItsVerification verifies that nothing waits for the test of a node that was
// replaced, whether it has failed its test or not begun it.
func TestReplacedBeforeItsVerification(t *testing.T) {
	t.Parallel()
	for name, tested := range map[string]bool{"Rebooted": false, "FailedItsTest": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fail := verifier(func(string) (Verdict, error) { return Verdict{Done: true, Message: "no GPU"}, nil })
			w := newFixture(t, Config{Verifier: fail}, faults.RemedyReboot)
			w.settle()
			w.accepted()
			w.boots()
			w.ends(metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
			w.settle()
			w.stored.DesiredActions = nil
			if tested {
				w.stored.HealthySince = &metav1.Time{Time: w.now}
			}
			w.settle()
			if !w.r.BlocksRelease(w.stored) {
				t.Fatalf("it could have been released: %+v", w.stored.Remediation)
			}
			w.node.UID = "another-uid"
			w.settle()
			if m := w.stored.Remediation; w.r.BlocksRelease(w.stored) || m.State != faults.RemedyFailed || m.Message != "the node was deleted" {
				t.Errorf("it is %q, busy %t: %q", m.State, w.r.BlocksRelease(w.stored), m.Message)
			}
		})
	}
}

// TestJanitorBeganLate verifies that a request is followed until the deadline of the janitor, which
// may have begun long after the attempt, for example because another action ran on the node.
func TestJanitorBeganLate(t *testing.T) {
	t.Parallel()
	w := newFixture(t, Config{}, faults.RemedyReboot)
	w.settle()
	a := w.current()
	a.status.Deadline = &metav1.Time{Time: w.now.Add(50 * time.Minute)}
	w.says(a, v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
	w.now = w.now.Add(46 * time.Minute)
	w.settle()
	w.current() // fails if it was deleted
	if m := w.stored.Remediation; m.State != faults.RemedyRunning || len(w.created) != 1 {
		t.Errorf("it is %q: %q; created %v", m.State, m.Message, w.created)
	}
	w.now = w.now.Add(10 * time.Minute)
	w.step()
	if m := w.stored.Remediation; m.State != faults.RemedyFailed {
		t.Errorf("it is still %q: %q", m.State, m.Message)
	}
}

// TestObjectName verifies that names are valid, and unique for each node, session and
// attempt, regardless of the length of the node's name.
func TestObjectName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 240) + ".example.com"
	seen := map[string]bool{}
	for _, name := range []string{
		attemptObjectName("a", "12345678", 1), attemptObjectName("a", "12345678", 11), attemptObjectName("a", "12345679", 1),
		attemptObjectName(long, "12345678", 1), attemptObjectName(long[:251], "12345678", 1), attemptObjectName(strings.Repeat("b.", 126), "12345678", 1),
	} {
		if seen[name] || len(name) > 253 || strings.Contains(name, ".-") {
			t.Errorf("%q (%d)", name, len(name))
		}
		seen[name] = true
	}
}
