package fleetapi_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// A fragileFeed panics at every second read of the changes of a kind.
type fragileFeed struct {
	fleetapi.Store

	reads *atomic.Int64
}

func (s fragileFeed) VisitChanges(ctx context.Context, scope fleetapi.Scope, q fleetapi.ChangeQuery, visit func(*fleetapi.Change) error) (watch.Cursor, bool, error) {
	if q.Kind != "" && s.reads.Add(1)%2 == 0 {
		panic("the second page")
	}
	return s.Store.VisitChanges(ctx, scope, q, visit)
}

// TestPanicInAWatch checks that a panic after the beginning of an answer is logged, and does not
// affect other readers.
func TestPanicInAWatch(t *testing.T) {
	o := options{cfg: defaults()}
	o.store = func(s fleetapi.Store) fleetapi.Store { return fragileFeed{s, new(atomic.Int64)} }
	f := newFixtureWith(t, o)
	begin := f.list("clusters?limit=1").Cursor
	for _, name := range []string{"c-one", "c-two"} { // each on a separate page
		f.do("POST", "clusters", v1.CreateRequest{Name: name, Spec: []byte(`{"a":"` + strings.Repeat("x", 300_000) + `"}`)}).want(201)
	}
	for range 5 { // one more than the limit of concurrent readers
		w := f.watch(watchQuery("clusters", "", begin), nil)
		w.want("changed c-one")
		if e, open := <-w.events; open || w.end != nil {
			t.Errorf("behind it came %v, %v", e, w.end)
		}
	}
	if log := f.logs.String(); !strings.Contains(log, "the second page") {
		t.Error("the log does not tell of the panic")
	}
}
