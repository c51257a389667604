package fleetapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A watching is a watch over HTTP.
type watching struct {
	*testing.T

	resp   *http.Response
	events chan v1.WatchEvent
	end    error // once events is closed
	cancel context.CancelFunc
}

// watch opens a watch, with a header that may be nil.
func (f *fixture) watch(query string, header http.Header) *watching {
	f.Helper()
	resp, cancel := f.open(query, header)
	w := &watching{T: f.T, resp: resp, events: make(chan v1.WatchEvent, 1000), cancel: cancel}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		f.Fatalf("%s: answered %d %v", query, resp.StatusCode, resp.Header)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(w.events)
		w.end = w.read()
	}()
	f.Cleanup(func() {
		cancel()
		<-done
		_ = resp.Body.Close()
	})
	return w
}

// open sends the request of a watch.
func (f *fixture) open(query string, header http.Header) (*http.Response, context.CancelFunc) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	if !strings.HasPrefix(query, "/") {
		query = v1.BasePath + "/" + query
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+query, http.NoBody)
	if err != nil {
		f.Fatal(err)
	}
	maps.Copy(r.Header, header)
	if f.token != "" {
		r.Header.Set("Authorization", "Bearer "+f.token)
	}
	client := f.client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	return resp, cancel
}

func (w *watching) read() error {
	lines := bufio.NewScanner(w.resp.Body)
	lines.Buffer(nil, 4<<20)
	var e v1.WatchEvent
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			e.Type = v1.WatchEventType(value)
		case "id":
			e.Cursor = value
		case "data":
			e.Data = []byte(value)
		case "":
			if e.Type != "" {
				w.events <- e
			}
			e = v1.WatchEvent{}
		}
	}
	return lines.Err()
}

// next returns the next event; the end of the stream gives one without a type.
func (w *watching) next() v1.WatchEvent {
	w.Helper()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case e := <-w.events:
		return e
	case <-timer.C:
		w.Fatal("no event came")
	}
	return v1.WatchEvent{}
}

// want reads events and requires these, each a type and a name or id. Bookmarks may come between them. It
// returns the cursor of the last.
func (w *watching) want(want ...string) (cursor string) {
	w.Helper()
	got := []string{}
	for len(got) < len(want) {
		e := w.next()
		if e.Type == v1.WatchBookmark && want[len(got)] != string(v1.WatchBookmark) {
			continue // some time has passed
		}
		var about struct{ ID, Name string }
		if len(e.Data) > 0 {
			if err := json.Unmarshal(e.Data, &about); err != nil {
				w.Errorf("%s has %q: %v", e.Type, e.Data, err)
			}
		}
		name := about.Name
		if e.Type == v1.WatchRemoved {
			name = about.ID
		}
		got = append(got, strings.TrimSpace(string(e.Type)+" "+name))
		cursor = e.Cursor
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Fatalf("events (-want +got):\n%s", diff)
	}
	return cursor
}

func watchQuery(collection, labels, since string) string {
	v := url.Values{"watch": {"true"}}
	if labels != "" {
		v.Set("labels", labels)
	}
	if since != "" {
		v.Set("changed_since", since)
	}
	return collection + "?" + v.Encode()
}

// value returns the sum of a metric over its labels, or the count of a histogram.
func (f *fixture) value(name string) (sum float64) {
	f.Helper()
	families, err := f.metrics.Gather()
	if err != nil {
		f.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// changesSent returns the number of changes sent to watchers. It excludes bookmarks, whose number
// depends on the duration.
func (f *fixture) changesSent() (sum float64) {
	f.Helper()
	families, err := f.metrics.Gather()
	if err != nil {
		f.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "fleetloop_api_watch_events_total" && m.GetLabel()[0].GetValue() == string(v1.WatchChanged) {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func (f *fixture) eventually(check func() bool) {
	f.Helper()
	for range f.ticks(time.Millisecond, 20_000) {
		if check() {
			return
		}
	}
	f.Fatal("it did not come to that")
}

// ticks yields up to most ticks, for conditions that depend on the timing of a connection.
func (f *fixture) ticks(every time.Duration, most int) iter.Seq[int] {
	return func(yield func(int) bool) {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for i := range most {
			<-ticker.C
			if !yield(i) {
				return
			}
		}
	}
}
