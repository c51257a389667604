package watch

import "context"

const (
	// batchBytes is the size at which a batch is sent.
	batchBytes = 64 << 10
	// keptBytes is the maximum size of a buffer that is reused.
	keptBytes = 512 << 10
)

// A frameBatch collects events that are sent together. It holds a buffer only while it has events,
// because most watchers are idle most of the time.
type frameBatch struct {
	hub *Hub
	out Stream

	b                           []byte
	changed, removed, bookmarks int
}

func (b *frameBatch) addFrame(frame []byte, isRemoval bool) {
	if b.b == nil {
		b.b = (*b.hub.buffers.Get().(*[]byte))[:0] //nolint:errcheck // nothing else is put in
	}
	b.b = append(b.b, frame...)
	if isRemoval {
		b.removed++
	} else {
		b.changed++
	}
}

// flushFrames sends the batch unless it is empty.
func (b *frameBatch) flushFrames(ctx context.Context) error {
	if len(b.b) == 0 {
		return nil
	}
	err := b.out.SendEvents(ctx, b.b)
	b.hub.metrics.countSentEvents(b)
	b.resetAndReleaseBuffer()
	return err
}

func (b *frameBatch) resetAndReleaseBuffer() {
	if cap(b.b) > 0 && cap(b.b) <= keptBytes {
		kept := b.b[:0]
		b.hub.buffers.Put(&kept)
	}
	b.b, b.changed, b.removed, b.bookmarks = nil, 0, 0, 0
}
