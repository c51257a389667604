package audit

import (
	"context"
	"errors"
	"sync"
)

// A queue has what is appended while a write runs wait for its end, and then
// go as one.
type queue struct {
	turn  chan struct{} // of capacity one: whoever is in it writes
	write func(context.Context, []Record) error

	mu   sync.Mutex
	open *batch // what is not being written yet
}

// A batch is what goes in one write.
type batch struct {
	parts [][]Record
	errs  []error // one for each part, when done is closed
	done  chan struct{}
}

// appendRecords returns when the records are written, or ctx has ended. They may be
// written all the same then, which does no harm.
func (q *queue) appendRecords(ctx context.Context, records []Record) error {
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

// flushBatch writes a batch. Whoever had the turn before may have done so.
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
	var all []Record
	for _, p := range b.parts {
		all = append(all, p...)
	}
	err := q.write(ctx, all)
	alone := len(b.parts) == 1 || err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, errAppendTimeout)
	for i, p := range b.parts {
		if b.errs[i] = err; !alone {
			// It may be one of them that cannot be written, and not the fault of the others.
			b.errs[i] = q.write(ctx, p)
		}
	}
}
