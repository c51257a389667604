package adapter

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// An Event is the part of a CloudEvent that an adapter uses.
type Event struct {
	// ID is the same for a redelivery and a resend of the same event, and only then.
	ID string

	// Type holds the kind of the resource: com.redhat.hyperfleet.cluster.reconcile.
	Type string

	// Data is a JSON object with the id of the resource as resource_id, resourceId or id, and
	// optionally its generation.
	Data []byte

	// TraceParent and TraceState are the W3C trace context of the sender.
	TraceParent, TraceState string
}

// A subject is the resource of an event.
type subject struct{ collection, id string }

// errIgnored is the error of an event that is not about a resource of the adapter.
var errIgnored = errors.New("not an event about a resource of this adapter")

// parseSubject returns the resource of an event and the generation that it names, or 0 for none.
func parseSubject(e Event, collections []string) (s subject, generation int64, err error) {
	switch e.Type {
	case "com.redhat.hyperfleet.cluster.reconcile":
		s.collection = v1.CollectionClusters
	case "com.redhat.hyperfleet.nodepool.reconcile":
		s.collection = v1.CollectionNodePools
	case "com.redhat.hyperfleet.manifest.reconcile":
		s.collection = v1.CollectionManifests
	case "com.redhat.hyperfleet.workload.reconcile":
		s.collection = v1.CollectionWorkloads
	default:
		return s, 0, fmt.Errorf("%w: type %q", errIgnored, e.Type)
	}
	if !slices.Contains(collections, s.collection) {
		return s, 0, fmt.Errorf("%w: collection %q", errIgnored, s.collection)
	}
	var data struct {
		Snake      string          `json:"resource_id"`
		Camel      string          `json:"resourceId"`
		Short      string          `json:"id"`
		Generation json.RawMessage `json:"generation"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return s, 0, fmt.Errorf("%w: data: %w", errIgnored, err)
	}
	// A payload template can turn the number into text. Anything else counts as not given.
	if text := data.Generation; len(text) > 1 && text[0] == '"' {
		data.Generation = text[1 : len(text)-1]
	}
	_ = json.Unmarshal(data.Generation, &generation)
	for _, id := range []string{data.Snake, data.Camel, data.Short} {
		if id != "" {
			s.id = id
			return s, generation, nil
		}
	}
	return s, 0, fmt.Errorf("%w: no resource_id, resourceId or id in its data", errIgnored)
}
