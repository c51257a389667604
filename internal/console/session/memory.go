package session

import (
	"context"
	"sync"
	"time"
)

// A Memory is a Store for one process, without a database. Sessions end with the process.
type Memory struct {
	mu   sync.Mutex
	rows map[Hash]*row
}

// A row is one session. Its update lock is held during a change, as that of a database is.
type row struct {
	update chan struct{}
	record Record // guarded by Memory.mu
}

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{rows: map[Hash]*row{}} }

// Create implements Store.
func (m *Memory) Create(_ context.Context, r Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[r.Hash] = &row{update: make(chan struct{}, 1), record: r}
	return nil
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, h Hash) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.rows[h]; ok {
		return r.record, nil
	}
	return Record{}, ErrNone
}

// Update implements Store.
func (m *Memory) Update(ctx context.Context, h Hash, change func(context.Context, Record) (Record, error)) error {
	m.mu.Lock()
	r, ok := m.rows[h]
	m.mu.Unlock()
	if !ok {
		return ErrNone
	}
	select {
	case r.update <- struct{}{}:
		defer func() { <-r.update }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	current, err := m.Get(ctx, h)
	if err != nil {
		return err
	}
	changed, err := change(ctx, current)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r.record = changed
	return nil
}

// Delete implements Store.
func (m *Memory) Delete(_ context.Context, h Hash) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, h)
	return nil
}

// DeleteOld implements Store.
func (m *Memory) DeleteOld(_ context.Context, now, seenBefore time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for h, r := range m.rows {
		if !now.Before(r.record.Expires) || r.record.Seen.Before(seenBefore) {
			delete(m.rows, h)
		}
	}
	return nil
}
