package clusterworker_test

import (
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// TestResults covers what is recorded for the answers of a sink.
func TestResults(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		answer  way
		actions []string
		age     time.Duration // of the change, which is queued now
		lasts   time.Duration
		want    []clusterworker.DeliveryResult
	}{
		"Delivered": {"no error is kept of a delivery", answered(http.StatusAccepted, nil), nil, 0, time.Second, []clusterworker.DeliveryResult{
			{Seq: 1, State: v1.DeliveryDelivered, Attempts: 1},
		}},
		"Skipped": {"a change that is not sent is not delivered", answered(http.StatusAccepted, nil), []string{"cordon"}, 0, time.Second, []clusterworker.DeliveryResult{
			{Seq: 1, State: v1.DeliverySkipped},
		}},
		"Rejected": {"a change that is rejected for its content is over", answered(http.StatusUnprocessableEntity, nil), nil, 0, time.Second, []clusterworker.DeliveryResult{
			{Seq: 1, State: v1.DeliveryRejected, Attempts: 1, Class: changeevent.ClassClientError, Status: http.StatusUnprocessableEntity},
		}},
		"Failed": {"each failure is recorded with its delay", answered(http.StatusBadGateway, nil), nil, 0, 6 * time.Second, []clusterworker.DeliveryResult{
			{Seq: 1, State: v1.DeliveryPending, Delay: 5 * time.Second, Attempts: 1, Class: changeevent.ClassServerError, Status: http.StatusBadGateway},
			{Seq: 1, State: v1.DeliveryPending, Delay: 10 * time.Second, Attempts: 1, Class: changeevent.ClassServerError, Status: http.StatusBadGateway},
		}},
		"SentAgain": {"an old change that is queued again is sent", answered(http.StatusAccepted, nil), nil, 24 * time.Hour, time.Second, []clusterworker.DeliveryResult{
			{Seq: 1, State: v1.DeliveryDelivered, Attempts: 1},
		}},
		"FailedAgain": {"and retried", answered(http.StatusBadGateway, nil), nil, 24 * time.Hour, time.Second, []clusterworker.DeliveryResult{
			{Seq: 1, State: v1.DeliveryPending, Delay: 5 * time.Second, Attempts: 1, Class: changeevent.ClassServerError, Status: http.StatusBadGateway},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &fakeStore{rows: map[int64]*fakeRow{}}
				store.add("a", "c")
				store.rows[1].Change.At = time.Now().Add(-tc.age)
				sink, err := changeevent.NewClient(changeevent.Config{
					Enabled: true, ClusterName: "c", Endpoint: "https://a.example", SenderRetries: true, Actions: tc.actions, HTTP: tc.answer, Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				runOf(t, store, tc.lasts, clusterworker.EventSink{Name: "a", Client: sink})
				if err := sink.Close(); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(tc.want, store.results); diff != "" {
					t.Errorf("%s (-want +got)\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestFailureIsNotCountedTwice covers that a failed delivery is not saved again after an error, because
// the store may have saved it, and another process may send the change by then.
func TestFailureIsNotCountedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{rows: map[int64]*fakeRow{}, unsure: true}
		store.add("a", "c")
		run(t, store, 4*time.Second, map[string]*fakeSink{"a": {answer: func(changeevent.ChangeEvent, int) changeevent.Class { return changeevent.ClassServerError }}})
		if n := store.rows[1].Failures; n != 1 {
			t.Errorf("%d failures are counted, want 1", n)
		}
	})
}

// TestStopWhileAResultIsSaved covers that a result is saved if the process is told to stop
// during the request that saves it.
func TestStopWhileAResultIsSaved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{rows: map[int64]*fakeRow{}, takes: 10 * time.Millisecond}
		store.add("a", "c")
		sink := &fakeSink{after: 50 * time.Millisecond}
		run(t, store, 100*time.Millisecond+5*time.Millisecond, map[string]*fakeSink{"a": sink})
		if left := store.left(); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
	})
}

// TestStopDuringAClaim covers that changes are sent if the process is told to stop while the answer to
// their claim is on its way. Otherwise they would wait for the end of the lease.
func TestStopDuringAClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{rows: map[int64]*fakeRow{}, claimTakes: 50 * time.Millisecond}
		store.add("a", "c")
		run(t, store, 20*time.Millisecond, map[string]*fakeSink{"a": {}})
		if left := store.left(); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
	})
}
