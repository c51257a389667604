package operator_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault/operator"
)

func TestSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("f1")
		for _, action := range []string{"cordon", "drain-started", "uncordon"} {
			b.tell(action, time.Now())
		}
		r := b.open(t, operator.EventSink{Name: "pager"})
		for _, class := range []changeevent.Class{changeevent.ClassClientError, "", changeevent.ClassClientError} {
			r.look(t)
			r.sinks[0].answer(class)
		}
		r.look(t)
		if d := b.fault.Status.SinkDeliveries["pager"]; !slices.Equal(d.Rejected, []int64{1, 3}) {
			t.Fatalf("refused %v", d.Rejected)
		}
		b.fault.Annotations = map[string]string{v1alpha1.AnnotationResend: "once"}
		r.look(t)
		r = b.open(t, operator.EventSink{Name: "pager"}) // a new process after a crash
		r.look(t)
		r.sinks[0].answer("")
		r.look(t)
		r.sinks[0].answer(changeevent.ClassClientError)
		r.look(t)
		if diff := cmp.Diff([]string{"cordon", "uncordon"}, r.sinks[0].sent); diff != "" {
			t.Errorf("sent again (-want +got):\n%s", diff)
		}
		st := b.fault.Status
		if d := st.SinkDeliveries["pager"]; !slices.Equal(d.Rejected, []int64{3}) || d.ProcessedSequence != 3 || st.LastResendRequest != "once" {
			t.Errorf("written: %+v, resent %q", d, st.LastResendRequest)
		}
		r.look(t)
		if len(r.sinks[0].sent) != 2 {
			t.Errorf("the same request had %v sent", r.sinks[0].sent)
		}
	})
}

// TestSentAgainTwice verifies that a second request during a resend sends the rejected
// records once more, and no accepted ones.
func TestSentAgainTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("f1")
		for _, action := range []string{"cordon", "drain-started", "uncordon"} {
			b.tell(action, time.Now())
		}
		r := b.open(t, operator.EventSink{Name: "pager"})
		for _, class := range []changeevent.Class{changeevent.ClassClientError, changeevent.ClassClientError, ""} {
			r.look(t)
			r.sinks[0].answer(class)
		}
		r.look(t)
		b.fault.Annotations = map[string]string{v1alpha1.AnnotationResend: "once"}
		r.look(t)
		r.sinks[0].answer(changeevent.ClassClientError) // of the first record
		r.look(t)
		b.fault.Annotations[v1alpha1.AnnotationResend] = "twice"
		r.look(t)
		for r.sinks[0].answer(changeevent.ClassClientError) {
			r.look(t)
		}
		want := []string{"cordon", "drain-started", "uncordon", "cordon", "drain-started", "cordon"}
		if diff := cmp.Diff(want, r.sinks[0].sent); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		d := b.fault.Status.SinkDeliveries["pager"]
		if !slices.Equal(d.Rejected, []int64{1, 2}) || d.ProcessedSequence != 3 {
			t.Errorf("written: %+v", d)
		}
	})
}

// TestLongPauses verifies that long delays of many retries stay at MaxRetry.
func TestLongPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("f1")
		b.tell("cordon", time.Now())
		r := b.openWith(t, operator.OutboxConfig{MaxAge: 10_000 * time.Hour, Retry: 4 * time.Hour, MaxRetry: 8 * time.Hour}, operator.EventSink{Name: "pager"})
		for try := range 40 {
			r.look(t)
			r.sinks[0].answer(changeevent.ClassServerError)
			after := r.look(t)
			if after != min(4*time.Hour<<min(try, 1), 8*time.Hour) {
				t.Fatalf("after failure %d it waits for %s", try+1, after)
			}
			time.Sleep(after)
		}
	})
}
