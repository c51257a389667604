package watch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/selector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A row is a resource of the fake feed.
type row struct {
	id, kind, tenant string
	labels           selector.Map
	version          int
	padding          string
}

func (r row) json() string {
	return fmt.Sprintf(`{"id":%q,"version":%d,"padding":%q}`, r.id, r.version, r.padding)
}

// A note is a line of the fake feed's log.
type note struct {
	at           watch.Position
	id           string
	kind, tenant string
	relabelled   bool
}

// A fakeFeed is a table with a log of its changes. Each change is a separate transaction; those
// from open on are not settled.
type fakeFeed struct {
	mu      sync.Mutex
	rows    map[string]row
	log     []note
	xact    uint64
	open    uint64 // 0 means none
	pruned  watch.Position
	epoch   uuid.UUID
	err     error
	reads   int // of all kinds, as by a hub
	own     int // of one kind, as by a watcher
	fetched int // changes that reads returned, visited or not
	took    time.Duration
	hung    atomic.Bool // reads do not return
}

func newFeed() *fakeFeed { return &fakeFeed{rows: map[string]row{}, xact: 100} }

func (f *fakeFeed) put(id string, change func(*row)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, there := f.rows[id]
	if !there {
		r = row{id: id, kind: "Cluster", tenant: "red"}
	}
	before := r.labels
	r.labels = maps.Clone(r.labels)
	r.version++
	if change != nil {
		change(&r)
	}
	f.rows[id] = r
	f.note(id, r, there && !maps.Equal(before, r.labels))
}

// add inserts a row.
func (f *fakeFeed) add(r row) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.rows[r.id]; !there {
		f.rows[r.id] = r
		f.note(r.id, r, false)
	}
}

func (f *fakeFeed) remove(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, there := f.rows[id]
	if !there {
		return
	}
	delete(f.rows, id)
	f.note(id, r, true)
}

func (f *fakeFeed) note(id string, r row, relabelled bool) {
	f.xact++
	f.log = append(f.log, note{watch.Position{Xact: f.xact, Seq: int64(len(f.log) + 1)}, id, r.kind, r.tenant, relabelled})
}

// fail makes every read fail, or none.
func (f *fakeFeed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// prune deletes the changes so far.
func (f *fakeFeed) prune() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log, f.pruned = nil, f.log[len(f.log)-1].at
}

// hold keeps new changes from being settled, until it is released.
func (f *fakeFeed) hold(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = 0
	if on {
		f.open = f.xact + 1
	}
}

func (f *fakeFeed) counts() (reads, own int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads, f.own
}

func (f *fakeFeed) fetchedChanges() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fetched
}

func (f *fakeFeed) settled() watch.Cursor {
	if f.open != 0 {
		return f.cursor(watch.Position{Xact: f.open})
	}
	return f.cursor(watch.Position{Xact: f.xact + 1})
}

func (f *fakeFeed) cursor(p watch.Position) watch.Cursor {
	return watch.Cursor{Epoch: f.epoch, Position: p}
}

// restore begins a new epoch.
func (f *fakeFeed) restore() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch[0]++
	f.log = nil
}

func (f *fakeFeed) ReadLatestCursor(context.Context) (watch.Cursor, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settled(), f.err
}

func (f *fakeFeed) VisitChanges(ctx context.Context, q watch.Query, visit func(watch.Change) error) (watch.Cursor, bool, error) {
	if f.took > 0 {
		time.Sleep(f.took)
	}
	if f.hung.Load() {
		<-ctx.Done()
	}
	changes, next, more, err := f.page(q)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	for _, c := range changes {
		if err == nil {
			err = visit(c)
		}
	}
	if err != nil {
		return watch.Cursor{}, false, err
	}
	return next, more, nil
}

// page reads like the store: the limit counts log entries.
func (f *fakeFeed) page(q watch.Query) (changes []watch.Change, next watch.Cursor, more bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q.Kind == "" {
		f.reads++
	} else {
		f.own++
	}
	if f.err != nil {
		return nil, next, false, f.err
	}
	if q.After.Compare(f.pruned) < 0 || q.After.Epoch != f.epoch {
		return nil, next, false, watch.ErrExpired
	}
	next = f.settled()
	var lines []note
	for _, n := range f.log {
		if n.at.Compare(q.After.Position) <= 0 || n.at.Compare(next.Position) >= 0 || q.Kind != "" && n.kind != q.Kind || !q.All && n.tenant != q.Tenant {
			continue
		}
		lines = slices.DeleteFunc(append(lines, n), func(m note) bool {
			return m.id == n.id && m.at != n.at && (n.relabelled || !m.relabelled)
		})
		if q.Limit--; q.Limit == 0 {
			next.Position, more = n.at, true
			break
		}
	}
	for _, n := range lines {
		c := watch.Change{At: n.at, Kind: n.kind, ID: n.id, Tenant: n.tenant, Relabelled: n.relabelled}
		if r, ok := f.rows[n.id]; ok {
			c.Labels, c.Record = r.labels, []byte(r.json())
		}
		changes = append(changes, c)
	}
	f.fetched += len(changes)
	return changes, next, more, nil
}

func position(t *testing.T, cursor string) watch.Cursor {
	t.Helper()
	c, err := watch.ParseCursor(cursor)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An event is a received event, or a comment, whose kind is ":".
type event struct {
	kind, cursor, data string
	at                 time.Time
}

// ident returns the id of the event's resource.
func (e event) ident() string {
	var v struct{ ID string }
	_ = json.Unmarshal([]byte(e.data), &v)
	return v.ID
}

// A client is a stream that records its events.
type client struct {
	t *testing.T

	mu     sync.Mutex
	opened bool
	events []event
	// slow, if set, is the time the client takes for each batch.
	slow time.Duration
	err  error
}

func (c *client) SendEvents(ctx context.Context, b []byte) error {
	if c.slow > 0 && len(b) > 0 {
		timer := time.NewTimer(c.slow)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened = true
	if c.err != nil {
		return c.err
	}
	for frame := range strings.SplitSeq(string(b), "\n\n") {
		if frame != "" {
			c.events = append(c.events, parse(c.t, frame))
		}
	}
	return nil
}

func parse(t *testing.T, frame string) event {
	t.Helper()
	if strings.HasPrefix(frame, ":") {
		return event{kind: ":", at: time.Now()}
	}
	lines := strings.Split(frame, "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "event: ") || !strings.HasPrefix(lines[1], "id: ") || !strings.HasPrefix(lines[2], "data: ") {
		t.Errorf("not an event: %q", frame)
		return event{}
	}
	return event{lines[0][7:], lines[1][4:], lines[2][6:], time.Now()}
}

func (c *client) all() []event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// told returns the received events in short form: kinds, and ids if present.
func (c *client) told() []string {
	out := []string{}
	for _, e := range c.all() {
		out = append(out, strings.TrimSpace(e.kind+" "+e.ident()))
	}
	return out
}

// A fixture is a running hub.
type fixture struct {
	*testing.T

	feed *fakeFeed
	hub  *watch.Hub
	reg  *prometheus.Registry
	stop func()
}

// run runs a test in a synctest bubble, on a hub that may be changed before it runs.
func run(t *testing.T, before func(*fixture), test func(*fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, feed: newFeed(), reg: prometheus.NewRegistry()}
		var err error
		f.hub, err = watch.New(watch.Config{MaxWatches: 60}, watch.Deps{
			Source: f.feed, Log: slog.New(slog.DiscardHandler), Metrics: f.reg,
		})
		if err != nil {
			t.Fatal(err)
		}
		if before != nil {
			before(f)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.hub.Run(ctx) }()
		f.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("run: %v", err)
			}
		})
		defer f.stop()
		test(f)
	})
}

// everything returns a request for all clusters.
func everything() watch.Request { return watch.Request{Kind: "Cluster", All: true} }

func after(c watch.Cursor) watch.Request {
	r := everything()
	r.After = &c
	return r
}

// A watching is a running watch.
type watching struct {
	*client

	leave context.CancelFunc
	done  chan struct{}
	end   error // once done is closed
}

func (f *fixture) watch(r watch.Request) *watching { return f.watchAs(r, &client{}) }

func (f *fixture) watchAs(r watch.Request, c *client) *watching {
	f.Helper()
	c.t = f.T
	ctx, cancel := context.WithCancel(f.Context())
	w := &watching{client: c, leave: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.end = f.hub.StreamChanges(ctx, r, c)
	}()
	f.Cleanup(func() {
		cancel()
		<-w.done
	})
	synctest.Wait()
	return w
}

func (w *watching) wait() error {
	<-w.done
	return w.end
}

// pass lets time pass in the synctest bubble.
func pass(d time.Duration) { time.Sleep(d) }
