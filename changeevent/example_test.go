package changeevent_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/fleetloop/fleetloop/changeevent"
)

// The reconciler of ADR-026, with its call sites unchanged.
type reconciler struct {
	k8sClient         node
	changeEventClient changeevent.Client
}

type node struct{}

func (node) QuarantineNodeAndSetAnnotations() error      { return nil }
func (node) UnQuarantineNodeAndRemoveAnnotations() error { return nil }

type healthEvent struct {
	NodeName, CheckName, ErrorCode, Agent string
}

func (r *reconciler) cordon(ctx context.Context, event struct{ HealthEvent healthEvent }) {
	err := r.k8sClient.QuarantineNodeAndSetAnnotations()
	if err == nil {
		r.changeEventClient.SendChangeEvent(ctx, changeevent.ChangeEvent{
			Action:    "cordon",
			NodeName:  event.HealthEvent.NodeName,
			CheckName: event.HealthEvent.CheckName,
			ErrorCode: event.HealthEvent.ErrorCode,
			Agent:     event.HealthEvent.Agent,
			Timestamp: time.Now().UTC(),
		})
	}
}

func (r *reconciler) uncordon(ctx context.Context, event healthEvent) {
	err := r.k8sClient.UnQuarantineNodeAndRemoveAnnotations()
	if err == nil {
		r.changeEventClient.SendChangeEvent(ctx, changeevent.ChangeEvent{
			Action:    "uncordon",
			NodeName:  event.NodeName,
			CheckName: event.CheckName,
			Reason:    "all health checks passed",
			Timestamp: time.Now().UTC(),
		})
	}
}

func Example() {
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		payload, err := changeevent.Decode(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Println(r.Method, r.URL, r.Header.Get("Authorization")+":", payload.Summary)
	}))
	defer sink.Close()

	client, err := changeevent.NewClient(changeevent.Config{
		Enabled:         true,
		Endpoint:        sink.URL + "/changes",
		ClusterName:     "my-cluster-name",
		AuthHeader:      "Authorization",
		AuthToken:       "Bearer secret",
		Timeout:         10 * time.Second,
		ShutdownTimeout: 10 * time.Second,
	})
	if err != nil {
		fmt.Println(err) // and the client does nothing
	}
	event := healthEvent{NodeName: "gpu-node-01", CheckName: "xid-check", ErrorCode: "XID-79", Agent: "syslog-health-monitor"}
	r := &reconciler{changeEventClient: client}
	r.cordon(context.Background(), struct{ HealthEvent healthEvent }{event})
	r.uncordon(context.Background(), event)
	if err := client.Close(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// POST /changes/my-cluster-name Bearer secret: NVSentinel cordoned node gpu-node-01 due to XID-79
	// POST /changes/my-cluster-name Bearer secret: NVSentinel uncordoned node gpu-node-01 - all health checks passed
}
