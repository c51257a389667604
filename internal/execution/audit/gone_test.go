package audit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
)

// ListOpenExecutions gives the executions that are open, as a store does.
func (s *fakeStore) ListOpenExecutions(_ context.Context, p audit.Page) ([]audit.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sick != nil {
		return nil, s.sick
	}
	s.pages = append(s.pages, p)
	var list []audit.Record
	for _, r := range s.open {
		if r.ExecutionUID > p.After && !s.kept[r.ExecutionUID+"/73"] && len(list) < p.Most {
			list = append(list, r)
		}
	}
	return list, nil
}

// TestWhatIsRecordedOfOneThatIsGone holds that a history is closed by when the
// object went, and that who had approved until then is no longer waited for.
func TestWhatIsRecordedOfOneThatIsGone(t *testing.T) {
	noticed := begin.Add(time.Hour)
	waits := func(ke *v1alpha1.KubernetesExecution) {
		enter(ke, v1alpha1.PhaseValidating, 1)
		check(ke, true)
		enter(ke, v1alpha1.PhaseWaitingApproval, 2)
		ke.Status.Approval = &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalPending, Required: true, RequiredCount: 2, CountedDecisions: []v1alpha1.Approval{decision("bob", v1alpha1.Approve)}}
	}
	for name, tc := range map[string]struct {
		reason  string
		ke      func(ke *v1alpha1.KubernetesExecution)
		unseen  bool
		seqs    []int32
		at      time.Time
		payload string
	}{
		"Never":  {"it was asked for, at least", func(*v1alpha1.KubernetesExecution) {}, false, []int32{1, 73}, noticed, `{}`},
		"Waits":  {"one of two had approved, and no other will", waits, false, []int32{1, 2, 3, 4, 10, 73}, noticed, `{}`},
		"Unseen": {"nobody knows when it went", waits, true, []int32{1, 2, 3, 4, 10, 73}, noticed, `{"unseen":true}`},
		"Told": {"it says itself when", func(ke *v1alpha1.KubernetesExecution) {
			ke.DeletionTimestamp = new(metav1.NewTime(begin.Add(time.Minute)))
		}, true, []int32{1, 73}, begin.Add(time.Minute), `{}`},
		"Ended": {"as before, and that it went", func(ke *v1alpha1.KubernetesExecution) {
			waits(ke)
			approve(ke, v1alpha1.ApprovalRejected, 3, decision("bob", v1alpha1.Reject))
			enter(ke, v1alpha1.PhaseFailed, 4)
		}, false, []int32{1, 2, 3, 4, 10, 72, 73}, noticed, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			ke := newExecution()
			tc.ke(ke)
			before := audit.Records(ke, "local")
			got := audit.RecordsOfDeleted(ke, audit.Deletion{At: noticed, Unseen: tc.unseen}, "local")
			var seqs []int32
			for _, r := range got {
				seqs = append(seqs, r.Seq)
			}
			if diff := cmp.Diff(tc.seqs, seqs); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for _, r := range before {
				if r.Type != audit.Deleted && !slices.ContainsFunc(got, func(o audit.Record) bool { return cmp.Equal(o, r) }) {
					t.Errorf("%s: it no longer says %s", tc.reason, r.Type)
				}
			}
			last := got[len(got)-1]
			if last.Type != audit.Deleted || last.ActorType != audit.Unknown || !last.Time.Equal(tc.at) || string(last.Payload) != tc.payload {
				t.Errorf("%s: it ends with %+v", tc.reason, last)
			}
		})
	}
}

// TestGoneWhileTheStoreIsAway holds that one that is gone counts as waiting until
// it is recorded.
func TestGoneWhileTheStoreIsAway(t *testing.T) {
	s := newStore()
	a, reg := newAuditor(t, s)
	const pending = `
		# HELP kubernetesexecution_audit_pending_records Number of audit records that are currently waiting to be written to the audit database.
		# TYPE kubernetesexecution_audit_pending_records gauge
		kubernetesexecution_audit_pending_records %d
	`
	s.fail = func([]audit.Record) error { return audit.ErrUnavailable }
	if err := a.RecordDeletion(t.Context(), newExecution(), begin, false); !errors.Is(err, audit.ErrUnavailable) {
		t.Fatal(err)
	}
	wantMetric(t, reg, "pending_records", fmt.Sprintf(pending, 2))
	s.fail = nil
	if err := a.RecordDeletion(t.Context(), newExecution(), begin, false); err != nil {
		t.Fatal(err)
	}
	wantMetric(t, reg, "pending_records", fmt.Sprintf(pending, 0))
	if !s.kept["uid-1/1"] || !s.kept["uid-1/73"] {
		t.Errorf("what is kept is %v", s.kept)
	}
}

// TestLostOnesAreClosed holds that all that are not there are closed, in bounded
// pages, and nothing else.
func TestLostOnesAreClosed(t *testing.T) {
	s := newStore()
	a, _ := newAuditor(t, s)
	for i := range 450 {
		name := fmt.Sprintf("ke-%03d", i)
		s.open = append(s.open, audit.Record{ExecutionUID: "uid-" + name, Name: name, Namespace: "exec", Cluster: "local", Action: "scale_deployment", Parent: "A/b/c"})
	}
	var written []audit.Record
	s.fail = func(records []audit.Record) error { written = append(written, records...); return nil }
	there := func(_ context.Context, name types.NamespacedName, uid types.UID) (bool, error) {
		if string(uid) != "uid-"+name.Name || name.Namespace != "exec" {
			t.Errorf("asked for %s %s", name, uid)
		}
		return name.Name >= "ke-100" && name.Name < "ke-440", nil
	}
	begun := time.Now().Truncate(time.Microsecond)
	if closed, err := a.RecordMissedDeletions(t.Context(), "exec", there); closed != 110 || err != nil {
		t.Errorf("%d were closed, want 110: %v", closed, err)
	}
	if len(written) != 110 || len(s.pages) != 3 {
		t.Fatalf("%d records and %d pages, want 110 and 3", len(written), len(s.pages))
	}
	for _, p := range s.pages {
		if p.Cluster != "local" || p.Namespace != "exec" || p.Most != 200 {
			t.Errorf("asked for %+v", p)
		}
	}
	for _, r := range written {
		if r.Time.Before(begun) {
			t.Errorf("that was noticed at %s, before anybody looked", r.Time)
		}
		r.Time = time.Time{}
		want := audit.Record{
			ExecutionUID: "uid-" + r.Name, Name: r.Name, Namespace: "exec", Cluster: "local", Action: "scale_deployment", Parent: "A/b/c",
			Seq: 73, Type: audit.Deleted, ActorType: audit.Unknown, Payload: []byte(`{"unseen":true}`),
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	if closed, err := a.RecordMissedDeletions(t.Context(), "exec", there); closed != 0 || err != nil {
		t.Errorf("%d were closed again: %v", closed, err)
	}
}

// TestLostOnesAreNotGuessed holds that nothing is closed without an answer to the
// question whether it is there, and that the next call goes on.
func TestLostOnesAreNotGuessed(t *testing.T) {
	s := newStore()
	a, _ := newAuditor(t, s)
	s.open = []audit.Record{{ExecutionUID: "a"}, {ExecutionUID: "b"}}
	errNobody := errors.New("nobody answers")
	var answer error
	there := func(_ context.Context, _ types.NamespacedName, uid types.UID) (bool, error) {
		if uid == "b" {
			return false, answer
		}
		return true, nil
	}
	for _, step := range []struct {
		reason             string
		sick, fail, answer error
		want               error
		closed             int
	}{
		{"the store gives none", audit.ErrUnavailable, nil, nil, audit.ErrUnavailable, 0},
		{"the cluster does not answer", nil, nil, errNobody, errNobody, 0},
		{"it cannot be written", nil, audit.ErrUnavailable, nil, audit.ErrUnavailable, 0},
		{"all is well", nil, nil, nil, nil, 1},
		{"it is closed", nil, nil, nil, nil, 0},
	} {
		s.sick, answer = step.sick, step.answer
		s.fail = func([]audit.Record) error { return step.fail }
		if closed, err := a.RecordMissedDeletions(t.Context(), "exec", there); closed != step.closed || !errors.Is(err, step.want) {
			t.Errorf("%s: %d were closed, want %d: %v", step.reason, closed, step.closed, err)
		}
	}
	if s.kept["a/73"] || !s.kept["b/73"] {
		t.Errorf("what is kept is %v", s.kept)
	}
}
