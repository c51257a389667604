package operator

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/outbox"
)

// A merge patch leaves what it does not mention: a failure that is over, and
// records that were refused and are not any more, have to be taken away.
func TestProgressTakesAway(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 5, 4, 3, 0, 0, 0, time.UTC))
	for name, tc := range map[string]struct {
		reason string
		sink   *v1alpha1.DeliveryStatus
		want   string
	}{
		"Taken":   {"the sink is well again", &v1alpha1.DeliveryStatus{Seq: 3, At: &at}, `{"at":"2026-05-04T03:00:00Z","error":null,"failedAt":null,"refused":null,"seq":3}`},
		"Refused": {"what it would not have", &v1alpha1.DeliveryStatus{Seq: 3, Error: "client_error", FailedAt: &at, Refused: []int64{3}}, `{"at":null,"error":"client_error","failedAt":"2026-05-04T03:00:00Z","refused":[3],"seq":3}`},
		"Gone":    {"nobody tells it any more", nil, `null`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := json.Marshal(progress(outbox.Progress{Sinks: map[string]*v1alpha1.DeliveryStatus{"default": tc.sink}, Untold: 1, Resent: "x"}))
			if err != nil {
				t.Fatal(err)
			}
			want := `{"delivered":{"default":` + tc.want + `},"resent":"x","untold":1}`
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}
