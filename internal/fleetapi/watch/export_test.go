package watch

import v1 "github.com/fleetloop/fleetloop/api/fleet/v1"

// SetRing gives a hub another ring, before it runs.
func (h *Hub) SetRing(entries, bytes int) { h.ring = newRing(entries, bytes) }

// Sizes that tests go beyond.
const (
	PageLines  = pageLines
	BatchBytes = batchBytes
)

// Frame writes one event.
func Frame(event v1.WatchEventType, cursor string, data []byte) []byte {
	return appendFrame(nil, event, cursor, data)
}
