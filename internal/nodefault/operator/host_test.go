package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// TestProgressTakesAway verifies that a merge patch removes an error that is over and
// records that are no longer rejected, because omitted fields would stay.
func TestProgressTakesAway(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 5, 4, 3, 0, 0, 0, time.UTC))
	for name, tc := range map[string]struct {
		reason string
		sink   *v1alpha1.DeliveryStatus
		want   string
	}{
		"Taken":   {"the sink is well again", &v1alpha1.DeliveryStatus{ProcessedSequence: 3, LastDeliveredAt: &at}, `{"lastDeliveredAt":"2026-05-04T03:00:00Z","lastError":null,"lastFailedAt":null,"processedSequence":3,"rejected":null}`},
		"Refused": {"what it would not have", &v1alpha1.DeliveryStatus{ProcessedSequence: 3, LastError: "client_error", LastFailedAt: &at, Rejected: []int64{3}}, `{"lastDeliveredAt":null,"lastError":"client_error","lastFailedAt":"2026-05-04T03:00:00Z","processedSequence":3,"rejected":[3]}`},
		"Gone":    {"nobody tells it any more", nil, `null`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := json.Marshal(progressPatch(DeliveryProgress{Sinks: map[string]*v1alpha1.DeliveryStatus{"default": tc.sink}, Undelivered: 1, FinishedResend: "x"}))
			if err != nil {
				t.Fatal(err)
			}
			want := `{"lastResendRequest":"x","sinkDeliveries":{"default":` + tc.want + `},"undeliveredChangeEvents":1}`
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRefused verifies that a reservation is returned only if a cordon was certainly not
// written.
func TestRefused(t *testing.T) {
	t.Parallel()
	group := corev1.Resource("nodes")
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Conflict":  {"another version is stored", apierrors.NewConflict(group, "n", errors.New("changed")), true},
		"Forbidden": {"there is no right", apierrors.NewForbidden(group, "n", errors.New("no right")), true},
		"Cut":       {"the connection broke: it may be stored", io.ErrUnexpectedEOF, false},
		"Late":      {"the API server gave up waiting: it may be stored", apierrors.NewServerTimeout(group, "patch", 1), false},
		"Store":     {"what it stores in did not answer: it may be stored", apierrors.NewInternalError(errors.New("etcdserver: request timed out")), false},
	} {
		if got := isCertainlyRejected(fmt.Errorf("write Node: %w", tc.err)); got != tc.want {
			t.Errorf("%s: %s: refused is %t", name, tc.reason, got)
		}
	}
}
