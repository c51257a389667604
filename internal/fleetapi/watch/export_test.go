package watch

import v1 "github.com/fleetloop/fleetloop/api/fleet/v1"

// SetRing replaces the ring of a hub, before it runs.
func (h *Hub) SetRing(entries, bytes int) { h.ring = newChangeRing(entries, bytes) }

// Sizes that tests exceed.
const (
	PageLines  = pageChanges
	BatchBytes = batchBytes
)

// Frame returns an encoded event.
func Frame(event v1.WatchEventType, cursor string, data []byte) []byte {
	return appendSSEFrame(nil, event, cursor, data)
}
