package operator

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// EnrollMissingSinks adds an entry for each new sink. It must be called before records are added, so
// that new sinks receive them.
func (o *Outbox) EnrollMissingSinks(status *v1alpha1.NodeFaultStatus, now time.Time) {
	before := *status // each entry depends only on the sinks that were there before
	status.SinkDeliveries = maps.Clone(status.SinkDeliveries)
	for _, sink := range o.sinks {
		if _, enrolled := status.SinkDeliveries[sink.Name]; enrolled {
			continue
		}
		if status.SinkDeliveries == nil {
			status.SinkDeliveries = map[string]v1alpha1.DeliveryStatus{}
		}
		status.SinkDeliveries[sink.Name] = o.initialDeliveryStatus(&before, sink, now)
	}
}

// initialDeliveryStatus returns the first entry of a sink.
func (o *Outbox) initialDeliveryStatus(
	status *v1alpha1.NodeFaultStatus, sink EventSink, now time.Time,
) v1alpha1.DeliveryStatus {
	firstSequence := status.LastSequence + 1
	switch {
	case sink.Replay:
		firstSequence = 0
	case !hasEntryOfThisRelease(status.SinkDeliveries):
		// An earlier release created no entry for a sink that had accepted nothing.
		// UndeliveredChangeEvents then is the number of waiting records.
		firstSequence -= int64(status.UndeliveredChangeEvents)
	}
	for i := range status.History {
		record := &status.History[i]
		if record.Sequence >= firstSequence && now.Sub(record.At.Time) <= o.cfg.MaxAge {
			return v1alpha1.DeliveryStatus{
				ProcessedSequence: record.Sequence - 1,
				EnabledAt:         &metav1.Time{Time: record.At.Time},
			}
		}
	}
	return v1alpha1.DeliveryStatus{
		ProcessedSequence: status.LastSequence,
		EnabledAt:         &metav1.Time{Time: now},
	}
}

func hasEntryOfThisRelease(deliveries map[string]v1alpha1.DeliveryStatus) bool {
	for _, d := range deliveries {
		if hasEnabledAt(d) {
			return true
		}
	}
	return false
}

// hasEnabledAt reports whether the entry of a sink was created by EnrollMissingSinks, rather than by an
// earlier release.
func hasEnabledAt(d v1alpha1.DeliveryStatus) bool { return d.EnabledAt != nil }
