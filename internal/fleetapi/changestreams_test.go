package fleetapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
)

// streamChanges opens a stream of change events.
func (f *fixture) streamChanges(query string, header http.Header) *watching {
	f.Helper()
	all := http.Header{"Accept": {"text/event-stream"}}
	maps.Copy(all, header)
	return f.watch("/api/changes"+query, all)
}

// wantChanges reads events and requires these actions and nodes.
func (w *watching) wantChanges(want ...string) (cursor string) {
	w.Helper()
	got := []string{}
	for len(got) < len(want) {
		e := w.next()
		switch e.Type {
		case v1.WatchBookmark:
			continue
		case v1.WatchChanged:
		case v1.WatchRemoved, v1.WatchError, "":
			w.Fatalf("got %s %s", e.Type, e.Data)
		}
		var event v1.ChangeEvent
		if err := json.Unmarshal(e.Data, &event); err != nil {
			w.Fatal(err)
		}
		got, cursor = append(got, event.Action+" "+event.Node+event.Subject), e.Cursor
	}
	wantEqual(w.T, "events", want, got)
	return cursor
}

func TestStreamOfChangeEvents(t *testing.T) {
	f := newFixture(t)
	now := time.Now()
	f.tell("eu-1", done("cordon", "n-0", now))
	live := f.changes("").Cursor
	fromNow, ofOne := f.streamChanges("", nil), f.streamChanges("?node=n-2&actor=fault-quarantine", nil)
	if e := fromNow.next(); e.Type != v1.WatchBookmark {
		t.Fatalf("got %s", e.Type)
	}
	f.tell("eu-1", done("cordon", "n-1", now.Add(-time.Hour))) // late, but still new
	f.tell("eu-1", []changeevent.Payload{done("cordon", "n-2", now), done("cordon", "n-3", now)})
	f.tell("eu-1", done("cordon", "n-1", now.Add(-time.Hour))) // repeated
	f.create("clusters", "eu-1", nil)
	fromNow.wantChanges("cordon n-1", "cordon n-2", "cordon n-3", "cluster-created clusters/eu-1")
	ofOne.wantChanges("cordon n-2")

	since := f.streamChanges("?after="+live, nil)
	cursor := since.wantChanges("cordon n-1", "cordon n-2")
	since.cancel()
	again := f.streamChanges("?after="+live, http.Header{"Last-Event-Id": {cursor}})
	again.wantChanges("cordon n-3", "cluster-created clusters/eu-1")
	f.api.StopWatches()
	for e := again.next(); e.Type != ""; e = again.next() {
		if e.Type != v1.WatchBookmark {
			t.Errorf("got %s %s", e.Type, e.Data)
		}
	}
	if f.value("fleetloop_timeline_watch_events_total") == 0 || f.value("fleetloop_timeline_events_received_total") == 0 {
		t.Error("nothing was counted")
	}
}

// TestStreamsOfTenants checks that a stream sends only events that its client could list.
func TestStreamsOfTenants(t *testing.T) {
	red, blue, system := newTenants(t)
	reds, everything := red.streamChanges("", nil), system.streamChanges("", nil)
	for _, w := range []*watching{reds, everything} {
		if e := w.next(); e.Type != v1.WatchBookmark {
			t.Fatalf("got %s", e.Type)
		}
	}
	now := time.Now()
	blue.tell("c-1", done("cordon", "n-blue", now))
	system.tell("c-1", done("cordon", "n-nobody", now))
	red.tell("c-1", done("cordon", "n-red", now))
	everything.wantChanges("cordon n-blue", "cordon n-nobody", "cordon n-red")
	reds.wantChanges("cordon n-red")
}

// TestARestartedStream resumes a stream repeatedly while many clients send events. It checks that
// no event is missed or received twice.
func TestARestartedStream(t *testing.T) {
	f := newFixture(t)
	const tellers, each = 4, 40
	cursor := f.changes("").Cursor
	var g errgroup.Group
	for teller := range tellers {
		g.Go(func() error {
			for i := range each {
				body, err := json.Marshal(done("cordon", fmt.Sprintf("n-%d-%d", teller, i), time.Now()))
				if err != nil {
					return err
				}
				resp, err := http.Post(f.url+v1.ChangesPath+"/eu-1", "application/json", bytes.NewReader(body)) //nolint:noctx // of this test
				if err != nil {
					return err
				}
				if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusAccepted {
					return fmt.Errorf("answered %d, %w", resp.StatusCode, err)
				}
			}
			return nil
		})
	}
	seen := map[string]int{}
	for count := 0; count < tellers*each; {
		w := f.streamChanges("?after="+cursor, nil)
		for range 7 {
			e := w.next()
			if e.Type == v1.WatchChanged {
				var event v1.ChangeEvent
				if err := json.Unmarshal(e.Data, &event); err != nil {
					t.Fatal(err)
				}
				seen[event.Node]++
				count++
			}
			cursor = e.Cursor
			if count == tellers*each {
				break
			}
		}
		w.cancel()
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for teller := range tellers {
		for i := range each {
			want[fmt.Sprintf("n-%d-%d", teller, i)] = 1
		}
	}
	wantEqual(t, "told", want, seen)
}
