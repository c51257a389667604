package sentinel_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hooked []sentinel.Published
		b := newFixture(t, newAPI(cluster("cls-123", "Provisioning", 2, 1), cluster("cls-ok", "Ready", 1, 1)), func(c *sentinel.Config, d *sentinel.Deps) {
			c.MessageData = settings.OrderedMap{{Key: "resource_id", Value: ".id"}, {Key: "zone", Value: ".metadata.labels.zone"}}
			d.OnPublished = func(p sentinel.Published) { hooked = append(hooked, p) }
		})
		begin := time.Now()
		b.run(t)
		synctest.Wait()

		got := b.broker.got()
		wantCount(t, "events", got, 1)
		want := cloudevent.Event{
			ID: got[0].ID, Source: "hyperfleet-sentinel", Type: "com.redhat.hyperfleet.cluster.reconcile", Subject: "cls-123",
			Time: begin.UTC(), Data: []byte(`{"resource_id":"cls-123","zone":""}`),
		}
		if diff := cmp.Diff(want, got[0].Event); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if !strings.HasPrefix(got[0].ID, "evt-") {
			t.Errorf("id %q", got[0].ID)
		}
		if len(hooked) != 1 || hooked[0].ResourceID != "cls-123" || hooked[0].Reason != "generation changed - new spec to reconcile" || hooked[0].EventID != got[0].ID {
			t.Errorf("hook: %+v", hooked)
		}
		wantCount(t, "info line with the reason", b.log.lines(`level=INFO msg="event published" resource_type=clusters selector="" resource_id=cls-123 reason="generation changed - new spec to reconcile"`), 1)
		wantCount(t, "debug line of the skip", b.log.lines(`level=DEBUG msg="resource skipped" resource_type=clusters selector="" resource_id=cls-ok reason="max age not expired"`), 1)
		wantCount(t, "warning of the missing field", b.log.lines(`level=WARN msg="message_data field is empty" resource_type=clusters selector="" resource_id=cls-123 key=message_data.zone`), 1)
		wantCount(t, "line of the round", b.log.lines(`level=INFO msg="poll completed" resource_type=clusters selector="" resources=2 due=1 published=1 failed=0`), 1)

		b.wantMetric(t, 2, "pending_resources", "shard", "all", "resource_type", "clusters")
		b.wantMetric(t, 1, "events_published_total", "shard", "all")
		b.wantMetric(t, 1, "resources_skipped_total", "ready_state", "ready")
		b.wantMetric(t, 0, "resources_skipped_total", "ready_state", "not_ready")
		b.wantMetric(t, 1, "reconcile_duration_seconds")
		b.wantMetric(t, 0, "api_errors_total", "operation", "fetch_resources")
		b.wantMetric(t, 0, "api_errors_total", "operation", "config_load")
		b.wantMetric(t, 0, "broker_errors_total", "broker_type", "nats")
		b.wantMetric(t, 0, "config_reloads_total")
		b.wantMetric(t, 60, "oldest_unreconciled_generation_seconds")
		b.wantMetric(t, float64(begin.Unix()), "last_successful_poll_timestamp_seconds")
		b.wantMetric(t, 1, "publish_duration_seconds")
		b.wantMetric(t, 0, "in_flight_events")
		b.wantMetric(t, 1, "payload_field_errors_total")
		b.wantMetric(t, 1, "decisions_total", "reason", "generation changed - new spec to reconcile")
		b.wantMetric(t, 1, "published_cache_entries")
	})
}

// TestEveryMissingFieldIsNamed: one that every resource lacks does not keep
// the others out of the log.
func TestEveryMissingFieldIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		for i := range 50 {
			api.put(cluster(fmt.Sprint(i), "", 1, 0))
		}
		b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) {
			c.MessageData = settings.OrderedMap{{Key: "zone", Value: ".zone"}, {Key: "rack", Value: `{{if eq .id "49"}}{{.rack}}{{end}}`}}
		})
		b.run(t)
		synctest.Wait()
		wantCount(t, "events", b.broker.got(), 50)
		b.wantMetric(t, 51, "payload_field_errors_total")
		wantCount(t, "lines of the field that all lack", b.log.lines("key=message_data.zone"), 10)
		wantCount(t, "lines of the field that one lacks", b.log.lines("resource_id=49 key=message_data.rack"), 1)
	})
}

func TestTypes(t *testing.T) {
	for collection, want := range map[string]string{
		"clusters":  "com.redhat.hyperfleet.cluster.reconcile",
		"nodepools": "com.redhat.hyperfleet.nodepool.reconcile",
		"manifests": "com.redhat.hyperfleet.manifest.reconcile",
		"workloads": "com.redhat.hyperfleet.workload.reconcile",
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newFixture(t, newAPI(cluster("a", "", 1, 0)), func(c *sentinel.Config, _ *sentinel.Deps) { c.ResourceType = collection })
			b.run(t)
			synctest.Wait()
			got := b.broker.got()
			if len(got) != 1 || got[0].Type != want {
				t.Errorf("%s: got %v, want type %q", collection, got, want)
			}
			if want := `{"resource_type":"` + collection + `","resource_id":"a","reason":"generation changed - new spec to reconcile"}`; string(got[0].Data) != want {
				t.Errorf("data: got %s, want %s", got[0].Data, want)
			}
			if q := b.api.calls()[0].query; q != collection+"?limit=500" {
				t.Errorf("request %q", q)
			}
		})
	}
}

// TestUnanswered: a new generation goes out at once, and again after the
// interval of its phase, not every round.
func TestUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, newAPI(cluster("a", "Provisioning", 2, 1)))
		begin := time.Now()
		b.run(t)
		time.Sleep(31 * time.Second)
		var at []time.Duration
		ids := map[string]bool{}
		for _, e := range b.broker.got() {
			at = append(at, e.at.Sub(begin))
			ids[e.ID] = true
		}
		if diff := cmp.Diff([]time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second}, at); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if len(ids) != len(at) {
			t.Errorf("%d ids for %d nudges", len(ids), len(at))
		}
		if b.metric(t, "decisions_total", "reason", "already published, waiting for adapters") == 0 {
			t.Error("the rounds between are not counted")
		}
		b.wantMetric(t, 90, "oldest_unreconciled_generation_seconds")
	})
}

// TestPatchedAllTheTime: a resource that is patched faster than it is answered
// gets an event for each generation.
func TestPatchedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, newAPI(cluster("a", "Provisioning", 1, 1)))
		b.run(t)
		time.Sleep(time.Second)
		for range 8 {
			time.Sleep(5 * time.Second)
			b.api.patch("a")
			b.api.change("a", func(r *v1.Resource) { r.Status.LastUpdatedTime = time.Now() })
		}
		time.Sleep(6 * time.Second)
		if n := len(b.broker.got()); n < 8 {
			t.Errorf("%d events for 8 patches", n)
		}
		if age := b.metric(t, "oldest_unreconciled_generation_seconds"); age < 35 {
			t.Errorf("the oldest has waited %v s by the metric; patches must not hide it", age)
		}
	})
}

func TestAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, newAPI(cluster("a", "Ready", 2, 1)))
		b.run(t)
		time.Sleep(time.Second)
		b.api.answer("a")
		time.Sleep(29 * time.Minute)
		wantCount(t, "events before the age", b.broker.got(), 1)
		b.wantMetric(t, 0, "published_cache_entries")
		b.wantMetric(t, 0, "oldest_unreconciled_generation_seconds")
		time.Sleep(time.Minute + 5*time.Second)
		wantCount(t, "events after the age", b.broker.got(), 2)
		b.api.patch("a")
		time.Sleep(5 * time.Second)
		wantCount(t, "events after a patch", b.broker.got(), 3)
	})
}

// TestRestart: a sentinel that is killed and started again says the same thing
// under the same id.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		for i := range 5 {
			r := cluster(fmt.Sprint("a", i), "Provisioning", 2, int64(1+i%2))
			r.Status.LastUpdatedTime = time.Now().Add(-11 * time.Second)
			if i > 2 {
				r.UpdatedTime = time.Now().Add(300 * time.Millisecond) // the API's clock is ahead of ours
			}
			api.put(r)
		}
		first := newFixture(t, api)
		stop := first.run(t)
		synctest.Wait()
		stop()
		time.Sleep(2 * time.Second)
		second := newFixture(t, api)
		second.run(t)
		synctest.Wait()
		wantCount(t, "events", first.broker.got(), 5)
		for _, e := range first.broker.got() {
			again := second.broker.of(e.Subject)
			if len(again) != 1 || again[0].ID != e.ID {
				t.Errorf("%s: first %s, then %v", e.Subject, e.ID, again)
			}
		}
	})
}

func TestTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := sdktrace.NewTracerProvider()
		b := newFixture(t, newAPI(cluster("a", "", 1, 0)), func(_ *sentinel.Config, d *sentinel.Deps) { d.Tracer = provider.Tracer("test") })
		b.run(t)
		synctest.Wait()
		if got := b.broker.got(); len(got) != 1 || !strings.HasPrefix(got[0].TraceParent, "00-") {
			t.Errorf("got %v", got)
		}
	})
}
