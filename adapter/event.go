package adapter

import (
	"cmp"
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

// A resourceKey is the resource of an event.
type resourceKey struct{ collection, id string }

// errIgnored is the error of an event that is not about a resource of the adapter. errOtherCollection is
// the usual one: the adapters share a stream, so each receives the events of all collections.
var (
	errIgnored         = errors.New("not an event about a resource of this adapter")
	errOtherCollection = fmt.Errorf("%w: it reports on other collections", errIgnored)
)

// parseResourceAndGeneration returns the resource of an event and the generation that it names, or 0 for none. With an
// error, it returns what it knows of the resource, for the log.
func parseResourceAndGeneration(e Event, collections []string) (s resourceKey, generation int64, err error) {
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
	other := !slices.Contains(collections, s.collection)
	var data struct {
		Snake      string          `json:"resource_id"`
		Camel      string          `json:"resourceId"`
		Short      string          `json:"id"`
		Generation json.RawMessage `json:"generation"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil && !other {
		return s, 0, fmt.Errorf("%w: data: %w", errIgnored, err)
	}
	// A payload template can turn the number into text. Anything else counts as not given.
	if text := data.Generation; len(text) > 1 && text[0] == '"' {
		data.Generation = text[1 : len(text)-1]
	}
	_ = json.Unmarshal(data.Generation, &generation)
	s.id = cmp.Or(data.Snake, data.Camel, data.Short)
	switch {
	case other:
		return s, generation, errOtherCollection
	case s.id == "":
		return s, 0, fmt.Errorf("%w: no resource_id, resourceId or id in its data", errIgnored)
	}
	return s, generation, nil
}
