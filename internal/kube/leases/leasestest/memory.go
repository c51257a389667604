// Package leasestest has an in-memory store of records, and the suite for it and the
// real store.
package leasestest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/fleetloop/fleetloop/internal/kube/leases"
)

// Memory stores the records of one group in memory. Create it with NewMemory.
type Memory struct {
	// Before, unless nil, is called before each request with the request's context. If
	// it returns an error, the request does nothing and returns that error. Set it
	// before the first request.
	Before func(ctx context.Context, request string) error

	mu      sync.Mutex
	version uint64
	records map[string]leases.Record
	log     []leases.Change
	grown   chan struct{} // closed when the log has grown
}

// NewMemory returns a store without records.
func NewMemory() *Memory {
	return &Memory{records: map[string]leases.Record{}, grown: make(chan struct{})}
}

// Put writes r if the stored version is that of r.
func (s *Memory) Put(ctx context.Context, r leases.Record) (leases.Record, error) {
	if err := s.checkRequest(ctx, "put"); err != nil {
		return leases.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkVersion(r, r.Version > 0); err != nil {
		return leases.Record{}, err
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
	s.notifyWatchers(leases.Change{Version: s.version, Records: []leases.Record{r}})
	return copyRecord(r), nil
}

// Delete deletes the record with r's name.
func (s *Memory) Delete(ctx context.Context, r leases.Record) error {
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
	s.notifyWatchers(leases.Change{Version: s.version, Gone: []string{r.Name}})
	return nil
}

// Remove deletes a record regardless of its version, as users do.
func (s *Memory) Remove(ctx context.Context, name string) error {
	s.mu.Lock()
	r := s.records[name]
	s.mu.Unlock()
	return s.Delete(ctx, r)
}

// Records returns all records, by name.
func (s *Memory) Records() []leases.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allRecords()
}

func (s *Memory) allRecords() []leases.Record {
	var all []leases.Record
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		all = append(all, copyRecord(s.records[name]))
	}
	return all
}

// Watch reports all records, and then changes, until ctx ends.
func (s *Memory) Watch(ctx context.Context, handle func(leases.Change)) error {
	if err := s.checkRequest(ctx, "watch"); err != nil {
		return err
	}
	s.mu.Lock()
	all, told, version := s.allRecords(), len(s.log), s.version
	s.mu.Unlock()
	handle(leases.Change{Version: version, All: true, Records: all})
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

func (s *Memory) checkRequest(ctx context.Context, request string) error {
	if s.Before != nil {
		if err := s.Before(ctx, request); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (s *Memory) checkVersion(r leases.Record, mustExist bool) error {
	now, ok := s.records[r.Name]
	switch {
	case mustExist && !ok:
		return fmt.Errorf("write lease %q: %w", r.Name, leases.ErrGone)
	case now.Version != r.Version, mustExist && now.Object != r.Object:
		return fmt.Errorf("write lease %q: %w", r.Name, leases.ErrConflict)
	}
	return nil
}

func (s *Memory) notifyWatchers(c leases.Change) {
	s.log = append(s.log, c)
	close(s.grown)
	s.grown = make(chan struct{})
}

func copyRecord(r leases.Record) leases.Record {
	r.Includes = maps.Clone(r.Includes)
	return r
}
