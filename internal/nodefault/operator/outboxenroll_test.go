package operator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/operator"
)

// drainAll accepts all events that a sink receives.
func (r *rig) drainAll(t *testing.T, sink int) []string {
	t.Helper()
	r.look(t)
	for r.sinks[sink].answer("") {
		r.look(t)
	}
	return r.sinks[sink].sent
}

// TestWhereASinkBegins verifies which records a sink without an entry receives of a node
// with three records, and which ones later.
func TestWhereASinkBegins(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		before v1alpha1.NodeFaultStatus // except the history
		replay bool
		ages   []time.Duration // of the records
		want   string
	}{
		"New":        {reason: "it hears what is done from now on", want: "after"},
		"Replay":     {reason: "somebody asked for it", replay: true, want: "a0 a1 a2 after"},
		"ReplayOld":  {reason: "what is too old is not told, and no failure either", replay: true, ages: []time.Duration{13 * time.Hour, time.Hour, 0}, want: "a1 a2 after"},
		"Earlier":    {reason: "an earlier release gave no place to a sink that waited", before: v1alpha1.NodeFaultStatus{UndeliveredChangeEvents: 2}, want: "a1 a2 after"},
		"EarlierToo": {reason: "also beside others", before: v1alpha1.NodeFaultStatus{UndeliveredChangeEvents: 3, SinkDeliveries: map[string]v1alpha1.DeliveryStatus{"other": {ProcessedSequence: 3}}}, want: "a0 a1 a2 after"},
		"BesideOthers": {
			reason: "what others wait for is not for it", want: "after",
			before: v1alpha1.NodeFaultStatus{UndeliveredChangeEvents: 3, SinkDeliveries: map[string]v1alpha1.DeliveryStatus{"other": {EnabledAt: &metav1.Time{}}}},
		},
		"HasOne": {reason: "it goes on", before: v1alpha1.NodeFaultStatus{SinkDeliveries: map[string]v1alpha1.DeliveryStatus{"pager": {ProcessedSequence: 1}}}, want: "a1 a2 after"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(24 * time.Hour)
				b := newBoard("f1")
				for i := range 3 {
					at := time.Now()
					if i < len(test.ages) {
						at = at.Add(-test.ages[i])
					}
					b.tell(fmt.Sprintf("a%d", i), at)
				}
				b.fault.Status.UndeliveredChangeEvents, b.fault.Status.SinkDeliveries = test.before.UndeliveredChangeEvents, test.before.SinkDeliveries
				r := b.openAnew(t, operator.OutboxConfig{}, operator.EventSink{Name: "pager", Replay: test.replay}, operator.EventSink{Name: "other"})
				r.look(t)
				b.tell("after", time.Now())
				if got := strings.Join(r.drainAll(t, 0), " "); got != test.want {
					t.Errorf("%s: it was sent %q, want %q", test.reason, got, test.want)
				}
				d := b.fault.Status.SinkDeliveries["pager"]
				if d.ProcessedSequence != 4 || d.EnabledAt == nil || len(d.Rejected) > 0 || d.Dropped > 0 {
					t.Errorf("written: %+v", d)
				}
				r = b.openAnew(t, operator.OutboxConfig{}, operator.EventSink{Name: "pager", Replay: test.replay}, operator.EventSink{Name: "other"})
				if got := r.drainAll(t, 0); len(got) > 0 {
					t.Errorf("another process sent %v again", got)
				}
			})
		})
	}
}

// TestPlaceComesWithTheRecord verifies that a sink receives a record that was written
// before the first reconcile of the outbox.
func TestPlaceComesWithTheRecord(t *testing.T) {
	b := newBoard("f1")
	b.tell("a0", time.Now())
	r := b.openAnew(t, operator.OutboxConfig{}, operator.EventSink{Name: "pager"})
	b.tell("a1", time.Now()) // like the operator, which also adds the entry
	if diff := cmp.Diff([]string{"a1"}, r.drainAll(t, 0)); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

// TestEveryRecordIsAccountedFor verifies that each record for a sink that accepts nothing
// is delivered eventually or counted.
func TestEveryRecordIsAccountedFor(t *testing.T) {
	for _, n := range []int{48, 64, 65, 200} {
		b := newBoard("f1")
		r := b.openAnew(t, operator.OutboxConfig{}, operator.EventSink{Name: "waits"}, operator.EventSink{Name: "pager"})
		for i := range n {
			b.tell(fmt.Sprint("a", i), time.Now())
			r.drainAll(t, 1)
		}
		if got, want := b.fault.Status.Dropped, int64(max(0, n-64)); got != want {
			t.Errorf("%d records: %d count as dropped, want %d", n, got, want)
		}
		told := len(r.drainAll(t, 0))
		d := b.fault.Status.SinkDeliveries["waits"]
		if int64(told)+d.Dropped != int64(n) || told < 64 && n >= 64 || d.ProcessedSequence != int64(n) {
			t.Errorf("%d records: the sink was told %d, and %d count as dropped: %+v", n, told, d.Dropped, d)
		}
		if p := b.fault.Status.SinkDeliveries["pager"]; p.Dropped != 0 || len(r.sinks[1].taken) != n {
			t.Errorf("%d records: the other sink was told %d, and %d count as dropped", n, len(r.sinks[1].taken), p.Dropped)
		}
	}
}

// TestSinkThatCannotWork verifies that a sink with invalid settings keeps its records
// until they expire, reports the error, and receives them once it is corrected.
func TestSinkThatCannotWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("f1")
		r := b.openAnew(t, operator.OutboxConfig{}, operator.EventSink{Name: "pager"})
		cannot := func() *operator.Outbox {
			m := newMetrics(t)
			return operator.NewOutbox(operator.OutboxConfig{}, []operator.EventSink{{Name: "pager"}}, b, m, func(string) {})
		}
		r.box = cannot()
		b.tell("a0", time.Now())
		time.Sleep(11 * time.Hour)
		b.tell("a1", time.Now())
		after := r.look(t)
		if d := b.fault.Status.SinkDeliveries["pager"]; d.LastError != "invalid_sink" || d.LastFailedAt == nil || d.ProcessedSequence != 0 || b.fault.Status.UndeliveredChangeEvents != 2 || after == 0 {
			t.Errorf("written: %+v, %d wait, and it looks again after %s", d, b.fault.Status.UndeliveredChangeEvents, after)
		}
		writes := b.writes
		if r.look(t); b.writes != writes {
			t.Error("it is written again that the sink cannot work")
		}
		time.Sleep(after)
		r.look(t)
		if d := b.fault.Status.SinkDeliveries["pager"]; d.ProcessedSequence != 1 || len(d.Rejected) != 1 || b.fault.Status.UndeliveredChangeEvents != 1 {
			t.Errorf("after 12 hours: %+v, %d wait", d, b.fault.Status.UndeliveredChangeEvents)
		}
		r = b.openAnew(t, operator.OutboxConfig{}, operator.EventSink{Name: "pager"})
		if diff := cmp.Diff([]string{"a1"}, r.drainAll(t, 0)); diff != "" {
			t.Errorf("mended, it is sent (-want +got):\n%s", diff)
		}
		if d := b.fault.Status.SinkDeliveries["pager"]; d.LastError != "" || b.fault.Status.UndeliveredChangeEvents != 0 {
			t.Errorf("mended: %+v, %d wait", d, b.fault.Status.UndeliveredChangeEvents)
		}
	})
}

// TestDrain verifies that Drain waits for pending responses, writes them, sends nothing
// more, and ends at its timeout.
func TestDrain(t *testing.T) {
	for name, answered := range map[string]bool{"Answered": true, "Silent": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard("f1")
				r := b.open(t, operator.EventSink{Name: "pager"})
				b.tell("a0", time.Now())
				b.tell("a1", time.Now())
				r.look(t)
				ended := make(chan error, 1)
				began := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				go func() { ended <- r.box.StopAwaitAndWriteResults(ctx) }()
				synctest.Wait()
				r.look(t)
				if answered {
					r.sinks[0].answer("")
				}
				err := <-ended
				r.look(t)
				d, took := b.fault.Status.SinkDeliveries["pager"], time.Since(began)
				if want := map[bool]int64{true: 1}[answered]; d.ProcessedSequence != want || (err == nil) != answered {
					t.Errorf("the sink is at %d, want %d; it ends with %v", d.ProcessedSequence, want, err)
				}
				if !answered && took != changeevent.DefaultShutdownTimeout {
					t.Errorf("it waits for %s", took)
				}
				if diff := cmp.Diff([]string{"a0"}, r.sinks[0].sent); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestStatusFitsItsObject verifies that the largest history, with many sinks that each
// have a backlog, is far below the size limit of the API server.
func TestStatusFitsItsObject(t *testing.T) {
	const limit, sinks = 1 << 20, 50 // etcd allows 1.5 MiB
	long := func(n int) string { return strings.Repeat("x", n) }
	st := &v1alpha1.NodeFaultStatus{NodeUID: "n", SinkDeliveries: map[string]v1alpha1.DeliveryStatus{}}
	now := metav1.Now()
	for i := range sinks {
		d := v1alpha1.DeliveryStatus{EnabledAt: &now, LastDeliveredAt: &now, LastFailedAt: &now, LastError: string(changeevent.ClassUnauthorized)}
		for k := range 16 {
			d.Rejected = append(d.Rejected, 1<<40+int64(k))
		}
		st.SinkDeliveries[fmt.Sprintf("%s%02d", long(61), i)] = d
	}
	codes := make([]string, 16)
	for i := range codes {
		codes[i] = long(64)
	}
	st.TriggeredBy = &v1alpha1.Fault{Source: long(128), Check: long(128), ErrorCodes: codes, Message: long(1024)}
	for i := range 200 {
		r := nodefault.NewRecord(st, changeevent.SourceFaultRemediation, changeevent.ActionTerminateRequested, fmt.Sprint(i), now.Time)
		r.Reason, r.Object = long(512), long(253)
		nodefault.AppendRecordOnceAndTrim(st, r)
	}
	raw := marshal(t, st)
	if len(st.History) != 64 || len(raw) > limit {
		t.Errorf("%d records for %d sinks are %d bytes, want %d at most", len(st.History), sinks, len(raw), limit)
	}
}
