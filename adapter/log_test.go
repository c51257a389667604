package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// TestLog checks the level and the fields of the log line of each event.
func TestLog(t *testing.T) {
	t.Parallel()
	const nodePool = "com.redhat.hyperfleet.nodepool.reconcile"
	cases := map[string]struct {
		reason string
		event  Event
		err    error
		want   map[string]any
	}{
		"Reported": {
			"it shows that the adapter works", event("e1", "r1"), nil,
			map[string]any{
				"level": "INFO", "msg": "reported", "collection": v1.CollectionClusters, "resource_id": "r1", "resource_name": "name-of-r1", "outcome": "reported",
				"generation": 1.0, "available": "True", "reason": "WorkSucceeded", "message": "done",
			},
		},
		"Failed": {
			"someone has to look", event("e1", "r1"), errors.New("no zone"),
			map[string]any{"level": "WARN", "msg": "event returned for a retry", "collection": v1.CollectionClusters, "resource_id": "r1", "outcome": "failed", "err": "no zone"},
		},
		"OtherCollection": {
			"it is normal, because adapters share a stream",
			Event{ID: "e1", Type: nodePool, Data: []byte(`{"id":"r2"}`)},
			nil,
			map[string]any{
				"level": "DEBUG", "msg": "event ignored", "collection": v1.CollectionNodePools, "resource_id": "r2", "outcome": "ignored",
				"event_type": nodePool, "err": errOtherCollection.Error(),
			},
		},
		"OtherData": {
			"the data of others does not matter",
			Event{ID: "e1", Type: nodePool, Data: []byte(`[]`)},
			nil,
			map[string]any{
				"level": "DEBUG", "msg": "event ignored", "collection": v1.CollectionNodePools, "resource_id": "", "outcome": "ignored",
				"event_type": nodePool, "err": errOtherCollection.Error(),
			},
		},
		"Malformed": {
			"the sentinel is configured wrongly",
			Event{ID: "e1", Type: event("", "").Type, Data: []byte(`{}`)},
			nil,
			map[string]any{
				"level": "WARN", "msg": "event ignored", "collection": v1.CollectionClusters, "resource_id": "", "outcome": "ignored",
				"event_type": event("", "").Type, "err": errIgnored.Error() + ": no resource_id, resourceId or id in its data",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out processtest.Buffer
				broker := newFakeBroker()
				stop := start(t, newAdapter(t, Config{Collections: []string{v1.CollectionClusters}}, func(context.Context, Resource) (Report, error) {
					return Available("done"), tc.err
				}, Deps{Consumer: broker, Fleet: newFakeFleet(), Log: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}))
				broker.queue <- tc.event
				synctest.Wait()
				stop()
				lines := strings.Split(strings.TrimSpace(out.String()), "\n")
				var got map[string]any
				if err := json.Unmarshal([]byte(lines[0]), &got); err != nil || len(lines) != 1 {
					t.Fatalf("%s: %v, want one line:\n%s", tc.reason, err, out.String())
				}
				delete(got, "time")
				want := maps.Clone(tc.want)
				want["adapter"], want["event_id"] = "dns", "e1"
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: log line (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestLogOfRepeatedReports holds that only changes are at info: a sentinel asks again and again.
func TestLogOfRepeatedReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out processtest.Buffer
		broker, fleet, available := newFakeBroker(), newFakeFleet(), true
		stop := start(t, newAdapter(t, Config{Collections: []string{v1.CollectionClusters}}, func(context.Context, Resource) (Report, error) {
			if available {
				return Available("done"), nil
			}
			return Waiting("not yet"), nil
		}, Deps{Consumer: broker, Fleet: fleet, Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}))
		for i, want := range []string{"INFO", "DEBUG", "INFO", "DEBUG"} {
			available = i < 2
			before := len(out.String())
			broker.queue <- event("e"+strconv.Itoa(i), "r1")
			synctest.Wait()
			if got := out.String()[before:]; !strings.Contains(got, "level="+want+" msg=reported") {
				t.Errorf("report %d: want level %s:\n%s", i, want, got)
			}
			last := fleet.of("r1")[i]
			status := v1.AdapterStatus{Adapter: "dns", ObservedGeneration: last.ObservedGeneration}
			for _, c := range last.Conditions {
				status.Conditions = append(status.Conditions, v1.AdapterCondition{ReportCondition: c})
			}
			fleet.set(func(f *fakeFleet) { f.statuses = []v1.AdapterStatus{status} })
		}
		stop()
	})
}
