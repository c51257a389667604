package changeevent

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// resending returns a configuration for a sender that retries.
func resending(s http.RoundTripper) Config {
	cfg := enabled(s)
	cfg.SenderRetries = true
	return cfg
}

// TestNoNodeWaitsForAnother verifies that an event without a response blocks only one
// worker, and that the other workers deliver all other events.
func TestNoNodeWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 200
		sink := &script{answer: func(n int, r *http.Request) (*http.Response, error) {
			if strings.HasPrefix(r.Header.Get("Idempotency-Key"), "sick") {
				return hang(n, r)
			}
			return status(http.StatusOK), nil
		}}
		cfg := resending(sink)
		cfg.Timeout = time.Hour
		c := start(t, cfg)
		var sick, told deliveries
		for i := range DefaultSenderRetryMaxConcurrentRequests - 1 {
			c.SendChangeEvent(t.Context(), ChangeEvent{ID: "sick" + strconv.Itoa(i), Action: ActionCordon, NodeName: "s" + strconv.Itoa(i), OnDelivery: sick.add})
		}
		for i := range nodes {
			c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: "n" + strconv.Itoa(i), OnDelivery: told.add})
		}
		synctest.Wait()
		if got := len(told.got()); got != nodes || len(sick.got()) != 0 {
			t.Errorf("%d of %d events are delivered while some hang, and %d of those that hang", got, nodes, len(sick.got()))
		}
		time.Sleep(time.Minute)
		if s := statsOf(t, c); s.Pending != DefaultSenderRetryMaxConcurrentRequests-1 || s.OldestPendingAge != time.Minute {
			t.Errorf("%d are pending, the oldest for %s", s.Pending, s.OldestPendingAge)
		}
		time.Sleep(time.Hour)
		if got := len(sick.got()); got != DefaultSenderRetryMaxConcurrentRequests-1 {
			t.Errorf("%d of those that hang are given up", got)
		}
	})
}

// TestGivenBackOnce verifies that an event that its sender retries has one attempt each
// time, and is counted once in the end.
func TestGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		sink := &script{answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch n {
			case 0:
				return status(http.StatusTooManyRequests, "Retry-After", "7"), nil
			case 1:
				return status(http.StatusUnauthorized), nil
			case 3:
				return status(http.StatusBadRequest), nil
			}
			return status(http.StatusOK), nil
		}}
		cfg := resending(sink)
		cfg.Registerer = reg
		c := start(t, cfg)
		var told deliveries
		for range 4 {
			c.SendChangeEvent(t.Context(), ChangeEvent{ID: "1", Action: ActionCordon, NodeName: "n", OnDelivery: told.add})
			synctest.Wait()
			time.Sleep(10 * time.Second) // the sink asks for seven
		}
		want := []Delivery{
			{ID: "1", Class: ClassRateLimited, Status: 429, Attempts: 1},
			{ID: "1", Class: ClassUnauthorized, Permanent: true, Status: 401, Attempts: 1},
			{ID: "1", Status: 200, Attempts: 1},
			{ID: "1", Class: ClassClientError, Permanent: true, Status: 400, Attempts: 1},
		}
		if diff := cmp.Diff(want, told.got(), cmpopts.IgnoreFields(Delivery{}, "At")); diff != "" {
			t.Errorf("the sender hears (-want +got):\n%s", diff)
		}
		const metrics = `
			# HELP nvsentinel_change_events_failed_total Total number of change events that this process could not deliver, by action (such as cordon) and error (such as timeout). If an event is sent again later and fails again, it is counted again.
			# TYPE nvsentinel_change_events_failed_total counter
			nvsentinel_change_events_failed_total{action="cordon",error="client_error"} 1
			nvsentinel_change_events_failed_total{action="cordon",error="rate_limited"} 1
			nvsentinel_change_events_failed_total{action="cordon",error="unauthorized"} 1
			# HELP nvsentinel_change_events_total Total number of change events that this process delivered or stopped trying to deliver, by action (such as cordon) and status: success, failed (the last request failed) or dropped (this process discarded the event, for example because its queue was full).
			# TYPE nvsentinel_change_events_total counter
			nvsentinel_change_events_total{action="cordon",status="failed"} 1
			nvsentinel_change_events_total{action="cordon",status="success"} 1
		`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(metrics), "nvsentinel_change_events_total", "nvsentinel_change_events_failed_total"); err != nil {
			t.Error(err)
		}
		if s := statsOf(t, c); s.Sent != 4 || s.Succeeded != 1 || s.Failed != 1 || s.ReturnedToSender != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// TestManyWorkersEnd verifies that all workers of a queue end with their client, and that
// no event is left in it.
func TestManyWorkersEnd(t *testing.T) {
	for range 20 {
		sink := new(script)
		c := start(t, resending(sink))
		const n = 50
		for i := range n {
			c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: strconv.Itoa(i)})
		}
		stop(t, c)
		if got := len(sink.got()); got != n {
			t.Fatalf("%d of %d events were sent before Close returned", got, n)
		}
	}
}
