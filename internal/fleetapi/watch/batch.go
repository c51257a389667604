package watch

import "context"

const (
	// batchBytes is how large a batch is when it is sent.
	batchBytes = 64 << 10
	// keptBytes is how large a buffer may be to be used again.
	keptBytes = 512 << 10
)

// A batch is events that are sent together. It has a buffer only while it has
// events: most watchers wait most of the time.
type batch struct {
	hub *Hub
	out Stream

	b                           []byte
	changed, removed, bookmarks int
}

func (b *batch) addFrame(frame []byte, removed bool) {
	if b.b == nil {
		b.b = (*b.hub.buffers.Get().(*[]byte))[:0] //nolint:errcheck // nothing else is put in
	}
	b.b = append(b.b, frame...)
	if removed {
		b.removed++
	} else {
		b.changed++
	}
}

// sendFrames sends what there is, if anything.
func (b *batch) sendFrames(ctx context.Context) error {
	if len(b.b) == 0 {
		return nil
	}
	err := b.out.Send(ctx, b.b)
	b.hub.metrics.countSent(b)
	b.releaseFrames()
	return err
}

func (b *batch) releaseFrames() {
	if cap(b.b) > 0 && cap(b.b) <= keptBytes {
		kept := b.b[:0]
		b.hub.buffers.Put(&kept)
	}
	b.b, b.changed, b.removed, b.bookmarks = nil, 0, 0, 0
}
