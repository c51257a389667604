package timeline

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// A longStore lists n large events.
type longStore struct {
	Store

	n    int
	says string
}

func (s longStore) List(_ context.Context, _ Scope, q Query, visit func(*Row) error) (watch.Cursor, error) {
	from := s.n
	if q.After != (Place{}) {
		from = int(q.After.Seq) - 1
	}
	for seq := from; seq > max(from-q.Limit, 0); seq-- {
		payload, err := json.Marshal(map[string]any{"action": "cordon", "summary": s.says})
		if err != nil {
			return watch.Cursor{}, err
		}
		if err := visit(&Row{At: time.Unix(int64(seq), 0).UTC(), Seq: int64(seq), Payload: payload}); err != nil {
			return watch.Cursor{}, err
		}
	}
	return watch.Cursor{}, nil
}

// TestAPageIsBounded checks the size of pages for any events and limits. All events are on some
// page.
func TestAPageIsBounded(t *testing.T) {
	tl := &Timeline{store: longStore{n: 60, says: strings.Repeat("x", 200<<10)}, retention: DefaultRetention}
	cursor, got, pages := "", 0, 0
	for again := true; again; again = cursor != "" {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/changes?limit=1000&continue="+url.QueryEscape(cursor), http.NoBody)
		w := httptest.NewRecorder()
		if err := tl.serveEventPage(w, r, Scope{All: true}); err != nil {
			t.Fatal(err)
		}
		if w.Body.Len() > 2*pageBytes {
			t.Fatalf("a page has %d bytes", w.Body.Len())
		}
		var page v1.ChangeEventList
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
			t.Fatal(err)
		}
		got, cursor = got+len(page.Items), page.Continue
		pages++
	}
	if got != 60 || pages < 2 {
		t.Errorf("%d events on %d pages, want 60 on more than one", got, pages)
	}
}
