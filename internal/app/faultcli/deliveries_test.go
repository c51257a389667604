package faultcli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// TestDeliveriesOfAnEvent verifies that --event and --clusters ask the fleet API, and no host cluster.
func TestDeliveriesOfAnEvent(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/changes/x/deliveries":
			_, _ = io.WriteString(w, `{"id":"x","recorded":true,"items":[{"sink":"on-call","type":"slack","state":"delivered","attempts":1}]}`)
		case "/api/changes/undelivered":
			_, _ = io.WriteString(w, `{"items":[],"more":false}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(api.Close)
	r := runCommand(t, "", "changes", "deliveries", "--event=x", "--server", api.URL)
	if r.code != 0 || !strings.Contains(r.out, "on-call   slack   delivered   1") {
		t.Errorf("exit code %d\n%s", r.code, r.outputText())
	}
	r = runCommand(t, "", "changes", "deliveries", "--clusters", "--server", api.URL)
	if r.code != 0 || !strings.Contains(r.outputText(), "No delivery of a change event of a cluster fails") {
		t.Errorf("exit code %d\n%s", r.code, r.outputText())
	}
}

// TestDeliveries verifies the display of sinks and the resend of rejected events.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	newFault(t, "told-a", drainingStatus(), xidFault())
	newFault(t, "told-b", v1alpha1.NodeFaultStatus{
		Phase: v1alpha1.PhaseHealthy,
		History: []v1alpha1.Record{
			{Sequence: 7, ID: "id-7", Action: "uncordon", Source: "nvsentinel/fault-quarantine", At: metav1.NewMicroTime(now.Add(-time.Hour))},
		},
		LastSequence: 7, Dropped: 2,
		SinkDeliveries: map[string]v1alpha1.DeliveryStatus{
			"default": {ProcessedSequence: 7, LastDeliveredAt: timeBefore(time.Minute), LastFailedAt: timeBefore(time.Hour), LastError: "timeout"},
			"on-call": {ProcessedSequence: 7, LastDeliveredAt: timeBefore(time.Hour), Rejected: []int64{3}, Dropped: 2}, // of which none is kept
		},
	})
	newFault(t, "told-c", v1alpha1.NodeFaultStatus{Phase: v1alpha1.PhaseObserved})

	wantGolden(t, "deliveries",
		wantRun(t, 0, "pending", "changes", "deliveries", "told-a", "told-b", "told-c"),
		wantRun(t, 0, "id-2", "changes", "deliveries", "told-a", "-o", "wide"),
		wantRun(t, 0, "All events are delivered.", "changes", "deliveries", "told-b"),
		wantRun(t, 0, "No change event of a node", "changes", "deliveries", "told-c"),
		wantRun(t, 2, "--all requires --resend", "changes", "deliveries", "--all"),
		wantRun(t, 2, "--clusters cannot be combined", "changes", "deliveries", "--clusters", "told-a"),
		wantRun(t, 2, "--event cannot be combined", "changes", "deliveries", "--event", "x", "told-a"),
		wantRun(t, 2, "or --all", "changes", "deliveries", "--resend"),
		wantRun(t, 2, "or --all", "changes", "deliveries", "--resend", "told-a", "--all"),
		wantRun(t, 0, "on-call", "changes", "deliveries", "--resend", "told-a", "told-b"),
		wantRun(t, 3, "has no NodeFault", "changes", "deliveries", "--resend", "told-x"),
	)
	if got := getFault(t, "told-a").Annotations[v1alpha1.AnnotationResend]; got != "2026-03-04T12:00:00Z" {
		t.Errorf("the controller is asked by %q", got)
	}
	for _, name := range []string{"told-b", "told-c"} {
		if got, asked := getFault(t, name).Annotations[v1alpha1.AnnotationResend]; asked {
			t.Errorf("of %s nothing is to be sent again, and the controller is asked by %q", name, got)
		}
	}

	all := wantRun(t, 0, "node told-a: rejected events are sent again to on-call", "changes", "deliveries", "--resend", "--all")
	if strings.Contains(all.out, "told-b") {
		t.Errorf("nothing of told-b was refused that is kept:\n%s", all.out)
	}
	var got struct {
		Sinks []struct {
			Sink             string
			Waiting, Refused int
		}
		UndeliveredChangeEvents []struct{ Node, Sink, State, Action, ID string }
	}
	data := wantRun(t, 0, "", "changes", "deliveries", "told-a", "-o", "json")
	if err := json.Unmarshal([]byte(data.out), &got); err != nil || len(got.Sinks) != 3 || len(got.UndeliveredChangeEvents) != 2 || got.UndeliveredChangeEvents[1].ID != "id-2" {
		t.Errorf("JSON: %v, %+v\n%s", err, got, data.out)
	}
	if none := wantRun(t, 0, "", "changes", "deliveries", "told-c", "-o", "json"); !strings.Contains(none.out, `"undeliveredChangeEvents": []`) {
		t.Errorf("none is not an empty list:\n%s", none.out)
	}
}
