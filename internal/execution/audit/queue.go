package audit

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// A queue collects the records appended during a write, and then writes them in one batch.
type queue struct {
	turn  chan struct{} // capacity one: its holder writes
	write func(context.Context, []Record) error

	mu   sync.Mutex
	open *batch // batch that is not being written yet
}

// A batch is the content of one write.
type batch struct {
	parts [][]Record
	errs  []error // one per part, set when done is closed
	done  chan struct{}
}

// appendInBatch returns when the records are written or ctx ends. They may still be written after
// ctx ends, which is harmless.
func (q *queue) appendInBatch(ctx context.Context, records []Record) error {
	b, part := q.joinBatch(records)
	select {
	case <-b.done:
	case q.turn <- struct{}{}:
		q.flushBatch(ctx, b)
		<-q.turn
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return b.errs[part]
}

func (q *queue) joinBatch(records []Record) (b *batch, part int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == nil {
		q.open = &batch{done: make(chan struct{})}
	}
	q.open.parts = append(q.open.parts, records)
	return q.open, len(q.open.parts) - 1
}

// flushBatch writes a batch, unless the previous writer already did.
func (q *queue) flushBatch(ctx context.Context, b *batch) {
	q.mu.Lock()
	if q.open != b {
		q.mu.Unlock()
		return
	}
	q.open = nil
	q.mu.Unlock()

	defer close(b.done)
	b.errs = make([]error, len(b.parts))
	err := q.write(ctx, slices.Concat(b.parts...))
	unreachable := errors.Is(err, ErrUnavailable) || errors.Is(err, errAppendTimeout)
	invalid := err != nil && !unreachable
	for i, part := range b.parts {
		b.errs[i] = err
		if invalid && len(b.parts) > 1 {
			b.errs[i] = q.write(ctx, part) // one invalid part must not affect the others
		}
	}
}
