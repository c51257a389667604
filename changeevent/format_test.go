package changeevent

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newEvent is an event as the client completes it.
func newEvent() *ChangeEvent {
	return &ChangeEvent{
		Action: ActionCordon, NodeName: "gpu-node-01", CheckName: "xid-check", ErrorCode: "XID-79", ErrorCodes: []string{"XID-79"},
		Agent: "syslog-health-monitor", IsFatal: true, Message: "GPU error detected",
		Timestamp: time.Date(2025, time.August, 26, 14, 42, 58, 315_900_000, time.UTC),
		ID:        "9b1c2d3e4f5061728394a5b6c7d8e9f0", Session: "k3f9c2", Source: SourceFaultQuarantine, Cluster: "my-cluster-name",
	}
}

func TestEncodeJSON(t *testing.T) {
	req, err := encode(FormatJSON, encoding{cluster: true}, []*ChangeEvent{newEvent()})
	if err != nil {
		t.Fatal(err)
	}
	want := request{
		contentType: "application/json",
		header:      http.Header{"Idempotency-Key": {"9b1c2d3e4f5061728394a5b6c7d8e9f0"}},
		path:        "my-cluster-name",
		body: []byte(`{"action":"cordon","timestamp":"2025-08-26T14:42:58.315Z","source":"nvsentinel/fault-quarantine",` +
			`"cluster":"my-cluster-name","node":"gpu-node-01",` +
			`"healthEvent":{"checkName":"xid-check","errorCode":"XID-79","agent":"syslog-health-monitor","isFatal":true,` +
			`"message":"GPU error detected","errorCodes":["XID-79"]},"dryRun":false,` +
			`"id":"9b1c2d3e4f5061728394a5b6c7d8e9f0","summary":"NVSentinel cordoned node gpu-node-01 due to XID-79",` +
			`"outcome":"succeeded","session":"k3f9c2"}`),
	}
	if diff := cmp.Diff(want, req, cmp.AllowUnexported(request{}), cmp.Transformer("text", func(b []byte) string { return string(b) })); diff != "" {
		t.Errorf("encode (-want +got):\n%s", diff)
	}
}
