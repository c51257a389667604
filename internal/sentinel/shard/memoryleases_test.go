package shard_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

// memoryLeases stores the records of one group in memory. Create it with newMemoryLeases.
type memoryLeases struct {
	// Before, unless nil, is called before each request with the request's context. If
	// it returns an error, the request does nothing and returns that error. Set it
	// before the first request.
	Before func(ctx context.Context, request string) error

	mu      sync.Mutex
	version uint64
	records map[string]shard.Record
	log     []shard.LeaseChange
	grown   chan struct{} // closed when the log has grown
}

// newMemoryLeases returns a store without records.
func newMemoryLeases() *memoryLeases {
	return &memoryLeases{records: map[string]shard.Record{}, grown: make(chan struct{})}
}

// Put writes r if the stored version is that of r.
func (s *memoryLeases) Put(ctx context.Context, r shard.Record) (shard.Record, error) {
	if err := s.checkRequest(ctx, "put"); err != nil {
		return shard.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkVersion(r, r.Version > 0); err != nil {
		return shard.Record{}, err
	}
	if old, ok := s.records[r.Name]; ok && reflect.DeepEqual(old, r) {
		return copyRecord(r), nil // no new version, as in the API server
	}
	s.version++
	if r.Version == 0 {
		r.Object = fmt.Sprint("object-", s.version)
	}
	r.Version = s.version
	r.Includes = maps.Clone(r.Includes)
	s.records[r.Name] = r
	s.notifyWatchers(shard.LeaseChange{Version: s.version, Records: []shard.Record{r}})
	return copyRecord(r), nil
}

// Delete deletes the record with r's name.
func (s *memoryLeases) Delete(ctx context.Context, r shard.Record) error {
	if err := s.checkRequest(ctx, "delete"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkVersion(r, true); err != nil {
		return err
	}
	s.version++
	delete(s.records, r.Name)
	s.notifyWatchers(shard.LeaseChange{Version: s.version, Gone: []string{r.Name}})
	return nil
}

// Remove deletes a record regardless of its version, as users do.
func (s *memoryLeases) Remove(ctx context.Context, name string) error {
	s.mu.Lock()
	r := s.records[name]
	s.mu.Unlock()
	return s.Delete(ctx, r)
}

// Records returns all records, by name.
func (s *memoryLeases) Records() []shard.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allRecords()
}

func (s *memoryLeases) allRecords() []shard.Record {
	var all []shard.Record
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		all = append(all, copyRecord(s.records[name]))
	}
	return all
}

// Watch reports all records, and then changes, until ctx ends.
func (s *memoryLeases) Watch(ctx context.Context, handle func(shard.LeaseChange)) error {
	if err := s.checkRequest(ctx, "watch"); err != nil {
		return err
	}
	s.mu.Lock()
	all, told, version := s.allRecords(), len(s.log), s.version
	s.mu.Unlock()
	handle(shard.LeaseChange{Version: version, All: true, Records: all})
	for {
		s.mu.Lock()
		news, grown := s.log[told:], s.grown
		s.mu.Unlock()
		for _, c := range news {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			handle(c)
		}
		told += len(news)
		if len(news) > 0 {
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *memoryLeases) checkRequest(ctx context.Context, request string) error {
	if s.Before != nil {
		if err := s.Before(ctx, request); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (s *memoryLeases) checkVersion(r shard.Record, mustExist bool) error {
	now, ok := s.records[r.Name]
	switch {
	case mustExist && !ok:
		return fmt.Errorf("write lease %q: %w", r.Name, shard.ErrGone)
	case now.Version != r.Version, mustExist && now.Object != r.Object:
		return fmt.Errorf("write lease %q: %w", r.Name, shard.ErrConflict)
	}
	return nil
}

func (s *memoryLeases) notifyWatchers(c shard.LeaseChange) {
	s.log = append(s.log, c)
	close(s.grown)
	s.grown = make(chan struct{})
}

func copyRecord(r shard.Record) shard.Record {
	r.Includes = maps.Clone(r.Includes)
	return r
}

func TestMemory(t *testing.T) {
	runLeaseStoreSuite(t, func(*testing.T) func() shard.LeaseStore {
		store := newMemoryLeases()
		return func() shard.LeaseStore { return store }
	})
}
