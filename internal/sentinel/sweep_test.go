package sentinel

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strconv"
	"testing"
	"testing/synctest"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// pagedAPI serves three resources that are due, one on each page.
type pagedAPI struct{}

func (pagedAPI) ListPage(_ context.Context, _ string, q url.Values, dst []byte) ([]byte, error) {
	at, _ := strconv.Atoi(q.Get("continue")) // 0 is the first page
	l := v1.List{Size: 1, Items: []v1.Resource{{ID: "c-" + strconv.Itoa(at), Generation: 2, Status: v1.Status{ObservedGeneration: 1}}}}
	if at < 2 {
		l.Continue = strconv.Itoa(at + 1)
	}
	body, err := json.Marshal(l)
	return append(dst[:0], body...), err
}

func (a pagedAPI) ListPageIf(ctx context.Context, c string, q url.Values, _ string, dst []byte) ([]byte, io.ReadCloser, string, error) {
	body, err := a.ListPage(ctx, c, q, dst)
	return body, nil, "", err
}

func (pagedAPI) Watch(context.Context, string, url.Values, func(v1.WatchEvent) error) error {
	return errors.ErrUnsupported
}

// hangingBroker confirms nothing.
type hangingBroker struct{}

func (hangingBroker) Publish(ctx context.Context, _ *cloudevent.Event) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hangingBroker) Ready() error { return nil }

func (hangingBroker) InFlight() int { return 0 }

// TestInterruptedListStartsOver verifies that a list starts over after a shard change, also if a
// publish that waits for a free place learns of the change before the reading of the list does.
func TestInterruptedListStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := New(Config{
			ResourceType:  "clusters",
			HyperfleetAPI: API{Endpoint: "http://fleet.test", PageSize: 1},
			Publish:       Publish{Window: 1},
		}, Deps{API: pagedAPI{}, Publisher: hangingBroker{}, BrokerType: "nats"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		defer s.events.pool.closeAndWait()
		defer cancel()
		s.rounds.Add(1)
		p := s.newDecisionPass(ctx)
		changed := make(chan struct{})
		err = s.listAndDecideAll(ctx, p, nil, func(source.Page, source.Envelope) error {
			// The first page fills the window. Only the publishers learn of the change: reading is
			// not interrupted yet when the second page waits for a free place.
			close(changed)
			p.interrupt = changed
			return nil
		})
		if !errors.Is(err, errShardChanged) {
			t.Errorf("got %v, want that the shard changed", err)
		}
		if s.start != (sweepStart{}) {
			t.Errorf("the next list starts at %+v, want the beginning", s.start)
		}
	})
}
