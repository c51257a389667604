package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// wantAttempted waits until the worker has tried to send n events to the sink, which rejects them.
func (d *drill) wantAttempted(t *testing.T, n int) {
	t.Helper()
	eventually(t, patience, func() error {
		if got := len(d.sink.idsOf(false)); got < n {
			return fmt.Errorf("%d change events, want %d", got, n)
		}
		return nil
	})
}

// wantDelivered waits until the sink has accepted the given events.
func (d *drill) wantDelivered(t *testing.T, ids []string) {
	t.Helper()
	eventually(t, patience, func() error {
		got := d.sink.idsOf(true)
		for _, id := range ids {
			if !slices.Contains(got, id) {
				return fmt.Errorf("change event %s was not delivered", id)
			}
		}
		return nil
	})
}

// A drillSink receives change events. It rejects them until accept is set.
type drillSink struct {
	*stub
	accept atomic.Bool

	mu  sync.Mutex
	ids map[bool][]string // by whether they were accepted
}

func newDrillSink(t *testing.T) *drillSink {
	t.Helper()
	s := &drillSink{ids: map[bool][]string{}}
	s.stub = newStub(t, func(w http.ResponseWriter, r *http.Request) {
		var e struct {
			ID string `json:"id"`
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &e)
		}
		if e.ID == "" {
			e.ID = r.Header.Get("Ce-Id")
		}
		if e.ID == "" {
			t.Errorf("a change event without an id: %s, %v", body, err)
		}
		accepts := s.accept.Load()
		s.mu.Lock()
		s.ids[accepts] = append(s.ids[accepts], e.ID)
		s.mu.Unlock()
		if !accepts {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	return s
}

// idsOf are the different ids of the events that it accepted, or of those that it rejected.
func (s *drillSink) idsOf(accepted bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := slices.Clone(s.ids[accepted])
	slices.Sort(ids)
	return slices.Compact(ids)
}

// forget makes it forget the events so far.
func (s *drillSink) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.ids)
}
