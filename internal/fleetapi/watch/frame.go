package watch

import (
	"bytes"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// An encodedChange is one change with the encoded events for watchers, which are encoded once for all of them.
type encodedChange struct {
	at     Position
	kind   string
	tenant string
	labels selector.Labels

	changed []byte // nil if the resource no longer exists
	// removed is the event for watchers whose selector does not match, or no longer. It is nil if
	// the resource exists and its labels have not changed, because a watcher whose selector does
	// not match it never received it.
	removed []byte
}

// entryOverhead is the approximate size of an entry without its encoded events, labels included.
const entryOverhead = 512

func (e *encodedChange) estimateSize() int { return len(e.changed) + len(e.removed) + entryOverhead }

func newEncodedChange(change *Change, feedCursor Cursor) *encodedChange {
	e := &encodedChange{at: change.At, kind: change.Kind, tenant: change.Tenant, labels: change.Labels}
	feedCursor.Position = change.At
	id := feedCursor.String()
	if change.Record != nil {
		e.changed = appendSSEFrame(nil, v1.WatchChanged, id, change.Record)
	}
	if change.Record == nil || change.Relabelled {
		e.removed = appendSSEFrame(nil, v1.WatchRemoved, id, []byte(`{"id":"`+change.ID+`"}`))
	}
	return e
}

// selectFrame returns the event of a change for a watcher. It is nil if the watcher must not or need not receive it.
func (w *Request) selectFrame(change *encodedChange) (frame []byte, isRemoval bool) {
	switch {
	case change.kind != w.Kind, !w.All && change.tenant != w.Tenant:
		return nil, false
	case change.changed != nil && (w.Labels == nil || w.Labels.Matches(change.labels)):
		return change.changed, false
	}
	return change.removed, true
}

// appendSSEFrame appends a server-sent event. The data must be one line: JSON needs no line breaks
// outside of strings and has none within them.
func appendSSEFrame(b []byte, event v1.WatchEventType, cursor string, data []byte) []byte {
	const between = "event: \nid: \ndata: \n\n"
	if b == nil {
		b = make([]byte, 0, len(between)+len(event)+len(cursor)+len(data))
	}
	b = append(b, "event: "...)
	b = append(b, event...)
	b = append(b, "\nid: "...)
	b = append(b, cursor...)
	b = append(b, "\ndata: "...)
	from := len(b)
	b = append(b, data...)
	for _, c := range []byte{'\n', '\r'} {
		for i := from; ; i++ {
			n := bytes.IndexByte(b[i:], c)
			if n < 0 {
				break
			}
			i += n
			b[i] = ' '
		}
	}
	return append(b, "\n\n"...)
}

// encodeSSEErrorEvent returns the event that ends a watch with a problem. It has no cursor, so the client
// resumes from the previous one, if it can.
func encodeSSEErrorEvent(problemJSON []byte) []byte {
	b := append([]byte("event: "), v1.WatchError...)
	b = append(b, "\ndata: "...)
	return append(append(b, problemJSON...), "\n\n"...)
}
