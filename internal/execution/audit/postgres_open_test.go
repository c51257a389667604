package audit_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
)

// waitingRecords are the records of an execution that has come to wait.
func waitingRecords(name string, change ...func(*audit.Record)) []audit.Record {
	list := newRecords(name)[:3]
	for i := range list {
		for _, do := range change {
			do(&list[i])
		}
	}
	return list
}

// open are the executions that are open, page by page.
func (b *storeBed) open(p audit.Page) []string {
	b.Helper()
	var list []string
	for {
		page, err := b.store.ListOpenExecutions(b.Context(), p)
		if err != nil {
			b.Fatal(err)
		}
		if len(page) > p.Most {
			b.Fatalf("%d on a page of %d", len(page), p.Most)
		}
		for _, r := range page {
			list = append(list, r.Name)
			p.After = r.ExecutionUID
		}
		if len(page) < p.Most {
			return list
		}
	}
}

// TestWhichAreOpen holds that what has ended or was deleted is not open, nor
// anybody else's.
func TestWhichAreOpen(t *testing.T) {
	b := newStoreBed(t)
	for _, name := range []string{"e", "c", "d", "a"} { // whatever the order in which they came
		b.append(waitingRecords(name)...)
	}
	b.append(waitingRecords("deleted")...)
	b.append(deletedRecord("deleted"))
	b.append(newRecords("ended")...)
	b.append(waitingRecords("elsewhere", func(r *audit.Record) { r.Cluster = "other" })...)
	b.append(waitingRecords("others", func(r *audit.Record) { r.Namespace = "other" })...)
	for _, most := range []int{1, 2, 3, 4, 100} {
		p := audit.Page{Cluster: "local", Namespace: "kubernaut-executor", Most: most}
		if diff := cmp.Diff([]string{"a", "c", "d", "e"}, b.open(p)); diff != "" {
			t.Errorf("in pages of %d (-want +got):\n%s", most, diff)
		}
	}
	page, err := b.store.ListOpenExecutions(t.Context(), audit.Page{Cluster: "other", Namespace: "kubernaut-executor", Most: 9})
	if err != nil {
		t.Fatal(err)
	}
	want := []audit.Record{{
		ExecutionUID: "uid-elsewhere", Action: "scale_deployment", Target: audit.Target{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
		Cluster: "other", Namespace: "kubernaut-executor", Name: "elsewhere", Correlation: "incident-7", Parent: "RemediationRequest/kubernaut-executor/cpu",
	}}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// newAuditor is an auditor on the bed.
func (b *storeBed) newAuditor() *audit.Auditor {
	b.Helper()
	a, err := audit.New(b.store, audit.Config{Cluster: "local"}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	return a
}

// TestLostOnesAreClosedOnce verifies that the history of a deleted execution gets one end, that the
// chain is intact, and that later calls change nothing.
func TestLostOnesAreClosedOnce(t *testing.T) {
	b := newStoreBed(t)
	a := b.newAuditor()
	b.append(waitingRecords("lost")...)
	b.append(waitingRecords("there")...)
	b.append(newRecords("ended")...)
	closes := func(want int) {
		t.Helper()
		closed, err := a.RecordMissedDeletions(t.Context(), "kubernaut-executor", func(_ context.Context, _ types.NamespacedName, uid types.UID) (bool, error) {
			return uid == "uid-there", nil
		})
		if closed != want || err != nil {
			t.Errorf("%d were closed, want %d: %v", closed, want, err)
		}
	}
	closes(1)
	closes(0)
	wantValue(b, "lost", `select name from executor.execution_summary where deleted_at is not null`)
	wantValue(b, `{"unseen": true}`, `select payload::text from executor.execution_audit_event where type = 'deleted'`)
	noticed := queryValue[time.Time](b, `select deleted_at from executor.execution_summary where name = 'lost'`)
	b.wantWhole(13)

	// What was told late is added, and does not say anew when it went.
	ke := &v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{Namespace: "kubernaut-executor", Name: "lost", UID: "uid-lost", CreationTimestamp: metav1.NewTime(recordsBegin)}}
	ke.Status.Phase = v1alpha1.PhaseFailed
	for range 2 {
		if err := a.RecordDeletion(t.Context(), ke, recordsBegin, false); err != nil {
			t.Fatal(err)
		}
	}
	b.wantWhole(14)
	wantValue(b, noticed, `select deleted_at from executor.execution_summary where name = 'lost'`)
	wantValue(b, "failed", `select phase from executor.execution_summary where name = 'lost'`)
}

// TestDeletedWhileItWaits verifies that an execution deleted before it acted has an end in the
// audit, in addition to the records written while it waited.
func TestDeletedWhileItWaits(t *testing.T) {
	b := newStoreBed(t)
	a := b.newAuditor()
	ke := &v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{Namespace: "kubernaut-executor", Name: "a", UID: "uid-a", CreationTimestamp: metav1.NewTime(recordsBegin)}}
	ke.Status.Phase = v1alpha1.PhaseWaitingApproval
	if _, err := a.Sync(t.Context(), ke); err != nil {
		t.Fatal(err)
	}
	events := func() string {
		var list []string
		for _, line := range b.list(audit.Filter{Execution: "uid-a"}) {
			list = append(list, strings.TrimPrefix(line, "a/"))
		}
		return strings.Join(list, " ")
	}
	before := events()
	for range 3 {
		if err := a.RecordDeletion(t.Context(), ke, recordsBegin.Add(time.Hour), false); err != nil {
			t.Fatal(err)
		}
	}
	if after := events(); before != "1 3 4" || after != "1 3 4 73" {
		t.Errorf("it says %q, and before %q", after, before)
	}
	wantValue(b, recordsBegin.Add(time.Hour), `select deleted_at at time zone 'UTC' from executor.execution_summary`)
	b.wantWhole(4)
}
