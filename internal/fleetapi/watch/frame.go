package watch

import (
	"bytes"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// An entry is one change with the encoded events for watchers, which are encoded once for all of
// them.
type entry struct {
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

func (e *entry) sizeBytes() int { return len(e.changed) + len(e.removed) + entryOverhead }

func newEntry(c *Change, cursor Cursor) *entry {
	e := &entry{at: c.At, kind: c.Kind, tenant: c.Tenant, labels: c.Labels}
	cursor.Position = c.At
	id := cursor.String()
	if c.Record != nil {
		e.changed = appendFrame(nil, v1.WatchChanged, id, c.Record)
	}
	if c.Record == nil || c.Relabelled {
		e.removed = appendFrame(nil, v1.WatchRemoved, id, []byte(`{"id":"`+c.ID+`"}`))
	}
	return e
}

// frameFor returns the event of a change for a watcher. It is nil if the watcher must not or need
// not receive it.
func (w *Request) frameFor(e *entry) (frame []byte, removed bool) {
	switch {
	case e.kind != w.Kind, !w.All && e.tenant != w.Tenant:
		return nil, false
	case e.changed != nil && (w.Labels == nil || w.Labels.Matches(e.labels)):
		return e.changed, false
	}
	return e.removed, true
}

// appendFrame appends a server-sent event. The data must be one line: JSON needs no line breaks
// outside of strings and has none within them.
func appendFrame(b []byte, event v1.WatchEventType, cursor string, data []byte) []byte {
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

// newErrorEvent returns the event that ends a watch with a problem. It has no cursor, so the client
// resumes from the previous one, if it can.
func newErrorEvent(problem []byte) []byte {
	b := append([]byte("event: "), v1.WatchError...)
	b = append(b, "\ndata: "...)
	return append(append(b, problem...), "\n\n"...)
}
