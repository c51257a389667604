package session

import (
	"context"
	"sync"
	"time"
)

// A MemoryStore is a Store for one process, without a database. Sessions end with the process.
type MemoryStore struct {
	mu   sync.Mutex
	rows map[Hash]*row
}

// A row is one session. Its update lock is held during a change, as that of a database is.
type row struct {
	update chan struct{}
	record Record // guarded by MemoryStore.mu
}

// NewMemoryStore returns an empty store.
func NewMemoryStore() *MemoryStore { return &MemoryStore{rows: map[Hash]*row{}} }

// CreateSession implements Store.
func (m *MemoryStore) CreateSession(_ context.Context, record Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[record.Hash] = &row{update: make(chan struct{}, 1), record: record}
	return nil
}

// Get implements Store.
func (m *MemoryStore) Get(_ context.Context, idHash Hash) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.rows[idHash]; ok {
		return r.record, nil
	}
	return Record{}, ErrNone
}

// UpdateLocked implements Store.
func (m *MemoryStore) UpdateLocked(ctx context.Context, idHash Hash, change func(context.Context, Record) (Record, error)) error {
	m.mu.Lock()
	r, ok := m.rows[idHash]
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
	current, err := m.Get(ctx, idHash)
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

// DeleteSession implements Store.
func (m *MemoryStore) DeleteSession(_ context.Context, idHash Hash) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, idHash)
	return nil
}

// DeleteExpiredAndIdle implements Store.
func (m *MemoryStore) DeleteExpiredAndIdle(_ context.Context, now, idleBefore time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for h, r := range m.rows {
		if !now.Before(r.record.Expires) || r.record.Seen.Before(idleBefore) {
			delete(m.rows, h)
		}
	}
	return nil
}
