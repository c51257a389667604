package changeevent

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

func TestMetricsAsTheDecisionRecordHasThem(t *testing.T) {
	reg := prometheus.NewRegistry()
	sink := &script{answer: answers(http.StatusOK, http.StatusForbidden)}
	cfg := once(sink)
	cfg.Registerer, cfg.MaxConcurrentRequests = reg, 1
	c := start(t, cfg)
	for range 2 {
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon})
	}
	stop(t, c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			got[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	want := map[string]float64{
		"nvsentinel_change_events_total{action=cordon,status=success}":         1,
		"nvsentinel_change_events_total{action=cordon,status=failed}":          1,
		"nvsentinel_change_events_failed_total{action=cordon,error=forbidden}": 1,
		"fleetloop_change_events_retries_total{sink=default}":                  0,
		"fleetloop_change_events_send_duration_seconds{sink=default}":          2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics after Close (-want +got):\n%s", diff)
	}
}

func TestActionsAreFewLabels(t *testing.T) {
	known := []string{
		ActionCordon, ActionUncordon, ActionDrainStarted, ActionDrainCompleted, ActionDrainFailed, ActionRebootRequested, ActionTerminateRequested,
		ActionRebootExecuted, ActionTerminateExecuted, ActionDrainCancelled, ActionOverrideDetected, ActionBudgetExhausted, ActionSupportRequired,
		ActionRebootSent, ActionTerminateSent, ActionRebootFailed, ActionTerminateFailed, ActionShootCreated, ActionShootUpdated, ActionShootDeleted, ActionShootReady, ActionShootFailed,
		ActionExecutionStarted, ActionExecutionSucceeded, ActionExecutionFailed, ActionExecutionApproved, ActionExecutionRejected,
		ActionExecutionRolledBack, ActionClusterCreated, ActionClusterChanged, ActionClusterDeleted,
	}
	for _, action := range known {
		if got := actionLabel(action); got != action {
			t.Errorf("%s is counted as %s", action, got)
		}
	}
	for _, action := range []string{"", "Cordon", "other", "node-1", strings.Repeat("x", 1000)} {
		if got := actionLabel(action); got != "other" {
			t.Errorf("%q is counted as %q, want as other", action, got)
		}
	}
}

func TestGaugesSayHowASinkStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length, oldest, success = "fleetloop_change_events_queue_length", "fleetloop_change_events_oldest_pending_age_seconds", "fleetloop_change_events_last_success_timestamp_seconds"
		reg := prometheus.NewRegistry()
		want := func(reason string, l, o, s float64) {
			t.Helper()
			for name, want := range map[string]float64{length: l, oldest: o, success: s} {
				if got := value(t, reg, name, "sink", "pager"); got != want {
					t.Errorf("%s: %s is %v, want %v", reason, name, got, want)
				}
			}
		}
		cfg := enabled(&script{answer: after(10*time.Second, http.StatusOK)})
		cfg.Registerer, cfg.Name, cfg.MaxConcurrentRequests, cfg.Timeout, cfg.ShutdownTimeout = reg, "pager", 1, time.Minute, time.Minute
		c := start(t, cfg)
		want("nothing yet", 0, 0, 0)
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon})
		time.Sleep(3 * time.Second)
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon})
		time.Sleep(time.Second)
		want("one in hand, one that waits", 2, 4, 0)

		second := start(t, cfg)
		second.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon})
		want("clients of one name are one", 3, 4, 0)

		began := time.Now().Add(-4 * time.Second)
		time.Sleep(6*time.Second + time.Second/2)
		want("one delivered, the second has waited since it was sent", 2, 7.5, float64(began.Add(10*time.Second).Unix()))
		if s := statsOf(t, c); s.Pending != 1 || s.OldestPendingAge != 7500*time.Millisecond || s.LastSuccess != began.Add(10*time.Second) || s.Succeeded != 1 {
			t.Errorf("stats %+v, want the same", s)
		}
		stop(t, c)
		stop(t, second)
		want("closed ones are no more", 0, 0, 0)
	})
}

func TestClientsShareARegisterer(t *testing.T) {
	reg := prometheus.NewRegistry()
	wrapped := prometheus.WrapRegistererWith(prometheus.Labels{"shard": "a"}, prometheus.NewRegistry())
	for _, r := range []prometheus.Registerer{reg, reg, wrapped, wrapped, nil} {
		cfg := once(&script{})
		cfg.Registerer = r
		c := start(t, cfg)
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon})
		stop(t, c)
	}
	if n := value(t, reg, "nvsentinel_change_events_total"); n != 2 {
		t.Errorf("%v events counted, want those of both clients", n)
	}
	other := prometheus.NewRegistry()
	other.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "nvsentinel_change_events_total", Help: "Another's."}))
	cfg := once(&script{})
	cfg.Registerer = other
	if c, err := NewClient(cfg); err == nil || c == nil {
		t.Errorf("got %v, %v; want an error, for what would be counted nowhere, and a client that does nothing", c, err)
	}
}

// TestNothingIsLostCountOf verifies the counts with random failures.
func TestNothingIsLostCountOf(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		events := rapid.IntRange(0, 60).Draw(rt, "events")
		shards, queue := rapid.IntRange(1, 4).Draw(rt, "shards"), rapid.IntRange(1, 8).Draw(rt, "queue")
		format := rapid.SampledFrom([]Format{FormatJSON, FormatCloudEventsBatch, FormatSlack}).Draw(rt, "format")
		late := rapid.IntRange(0, 5).Draw(rt, "late")
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			codes := []int{200, 200, 204, 302, 400, 401, 404, 429, 500, 503, 0, 1, 2}
			sink := &script{answer: func(n int, r *http.Request) (*http.Response, error) {
				code := codes[(seed+uint64(n)*7)%uint64(len(codes))]
				switch code {
				case 0:
					return nil, errScripted
				case 1:
					return hang(n, r)
				case 2:
					panic("of a sink")
				}
				return after(time.Duration(n%3)*time.Second, code)(n, r)
			}}
			reg := prometheus.NewRegistry()
			cfg := enabled(sink)
			cfg.Registerer, cfg.MaxConcurrentRequests, cfg.QueueSize, cfg.Format = reg, shards, queue, format
			c := start(t, cfg)
			told := map[string]int{}
			var d deliveries
			for i := range events {
				e := ChangeEvent{ID: fmt.Sprint(i), Action: ActionCordon, NodeName: fmt.Sprint(random.IntN(10)), OnDelivery: d.add}
				if random.IntN(10) == 0 {
					e.Timestamp = time.Now().Add(-24 * time.Hour)
				}
				if random.IntN(10) == 0 {
					e.Action = ""
				}
				c.SendChangeEvent(t.Context(), e)
				time.Sleep(time.Duration(random.IntN(3)) * time.Second)
			}
			_ = c.Close() // before or after all events are sent
			for range late {
				c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon})
			}
			wantCounted(t, c, reg, events+late)
			for _, x := range d.got() {
				told[x.ID]++
				if x.Class != "" && !slices.Contains(Classes(), x.Class) {
					t.Errorf("class %q is none", x.Class)
				}
			}
			for i := range events {
				if told[fmt.Sprint(i)] != 1 {
					t.Errorf("event %d was told of %d times, want once", i, told[fmt.Sprint(i)])
				}
			}
		})
		if t.Failed() {
			rt.Fatal("see above")
		}
	})
}
