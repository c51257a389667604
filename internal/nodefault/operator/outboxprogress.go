package operator

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// undeliveredUnknown is a value of DeliveryProgress.Undelivered. It leaves the stored number
// unchanged.
const undeliveredUnknown = -1

// DeliveryProgress holds the status fields that an outbox writes.
type DeliveryProgress struct {
	// Sinks holds the delivery states that have changed. Nil removes that of a sink, because the
	// sink is no longer configured.
	Sinks map[string]*v1alpha1.DeliveryStatus
	// Undelivered is the number of undelivered records, or undeliveredUnknown.
	Undelivered int32
	// FinishedResend is the value of the annotation that requested the last finished resend.
	FinishedResend string
}

// differsFrom reports whether the progress must be written to a stored status.
func (p DeliveryProgress) differsFrom(stored *v1alpha1.NodeFaultStatus) bool {
	return len(p.Sinks) > 0 ||
		p.Undelivered != stored.UndeliveredChangeEvents ||
		p.FinishedResend != stored.LastResendRequest
}

// WriteProgress sends a merge patch of the fields that only the outbox writes. It needs no version
// of f, because other writers do not touch these fields.
func (h cachedFaultClient) WriteProgress(
	ctx context.Context, f *v1alpha1.NodeFault, p DeliveryProgress,
) error {
	// The UID protects another NodeFault of the same name.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": f.UID},
		"status":   progressPatch(p),
	})
	if err != nil {
		return fmt.Errorf("write NodeFault %q: %w", f.Name, err)
	}
	to := f.DeepCopy()
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errRequestTimeout)
	defer cancel()
	owner := client.FieldOwner(v1alpha1.FieldManager + "-outbox")
	if err := h.client.Status().Patch(ctx, to, client.RawPatch(types.MergePatchType, patch), owner); err != nil {
		return fmt.Errorf("write NodeFault %q: %w", f.Name, err)
	}
	h.written.RecordWritten(to)
	return nil
}

// progressPatch returns the fields of the outbox as a merge patch. A merge patch changes only the
// fields that it names, and removes those that are null.
func progressPatch(p DeliveryProgress) map[string]any {
	sinks := make(map[string]any, len(p.Sinks))
	for name, delivery := range p.Sinks {
		if delivery == nil {
			sinks[name] = nil // removes the sink
		} else {
			sinks[name] = deliveryPatch(delivery)
		}
	}
	status := map[string]any{"sinkDeliveries": sinks}
	if p.Undelivered != undeliveredUnknown {
		status["undeliveredChangeEvents"] = p.Undelivered
	}
	if p.FinishedResend != "" {
		status["lastResendRequest"] = p.FinishedResend
	}
	return status
}

// deliveryPatch returns the delivery state of one sink as a merge patch. The fields that may become
// empty again are null then.
func deliveryPatch(d *v1alpha1.DeliveryStatus) map[string]any {
	patch := map[string]any{
		"processedSequence": d.ProcessedSequence,
		"lastDeliveredAt":   d.LastDeliveredAt,
		"lastError":         nil,
		"lastFailedAt":      d.LastFailedAt,
		"rejected":          nil,
	}
	if d.LastError != "" {
		patch["lastError"] = d.LastError
	}
	if len(d.Rejected) > 0 {
		patch["rejected"] = d.Rejected
	}
	// These two are never removed once they are set.
	if d.EnabledAt != nil {
		patch["enabledAt"] = d.EnabledAt
	}
	if d.Dropped > 0 {
		patch["dropped"] = d.Dropped
	}
	return patch
}
