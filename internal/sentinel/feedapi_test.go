package sentinel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// A statusError is the refusal of an API.
type statusError int

func (e statusError) Error() string   { return strconv.Itoa(int(e)) + " " + http.StatusText(int(e)) }
func (e statusError) StatusCode() int { return int(e) }

// A feedAPI is a fleet API with a change feed.
type feedAPI struct {
	*fakeAPI

	mu      sync.Mutex
	changes []string // the ids, in order
	oldest  int      // cursors before this are too old
	wake    chan struct{}

	// The features that it offers.
	cursors, watches, ids, tags bool

	// silent makes watches send nothing, cut ends the current ones.
	silent bool
	cut    chan struct{}

	watched int // how many watches have been begun
}

func newFeedAPI(resources ...v1.Resource) *feedAPI {
	return &feedAPI{
		fakeAPI: newAPI(resources...), wake: make(chan struct{}), cut: make(chan struct{}),
		cursors: true, watches: true, ids: true,
	}
}

func (a *feedAPI) note(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes = append(a.changes, id)
	close(a.wake)
	a.wake = make(chan struct{})
}

func (a *feedAPI) patch(id string)  { a.fakeAPI.patch(id); a.note(id) }
func (a *feedAPI) answer(id string) { a.fakeAPI.answer(id); a.note(id) }

func (a *feedAPI) remove(id string) {
	a.fakeAPI.mu.Lock()
	delete(a.resources, id)
	delete(a.encoded, id)
	a.sorted = nil
	a.fakeAPI.mu.Unlock()
	a.note(id)
}

func (a *feedAPI) add(r v1.Resource) {
	a.put(r)
	a.note(r.ID)
}

// expire makes all cursors too old, and ends the watches.
func (a *feedAPI) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes = append(a.changes, "")
	a.oldest = len(a.changes)
	a.disconnectLocked()
}

func (a *feedAPI) disconnect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.disconnectLocked()
}

func (a *feedAPI) disconnectLocked() {
	close(a.cut)
	a.cut = make(chan struct{})
}

func (a *feedAPI) now() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strconv.Itoa(len(a.changes))
}

// get returns the resources with the given ids that match the selector, as JSON, and the ids of the
// others.
func (a *feedAPI) get(ids []string, q url.Values) (items [][]byte, others []string) {
	a.fakeAPI.mu.Lock()
	defer a.fakeAPI.mu.Unlock()
	sel, err := selector.Parse(q.Get("labels"))
	if err != nil {
		panic(err)
	}
	for _, id := range ids {
		if r, ok := a.resources[id]; ok && sel.Matches(selector.Map(r.Labels)) {
			items = append(items, a.encodeLocked(id))
		} else {
			others = append(others, id)
		}
	}
	return items, others
}

// since returns the ids that changed since a cursor, without duplicates, and the next cursor.
func (a *feedAPI) since(cursor string) (ids []string, next string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	from, err := strconv.Atoi(cursor)
	if err != nil || from < a.oldest {
		return nil, "", statusError(http.StatusGone)
	}
	ids = slices.Clone(a.changes[from:])
	slices.Sort(ids)
	return slices.Compact(ids), strconv.Itoa(len(a.changes)), nil
}

func (a *feedAPI) offers() (cursors, ids bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cursors, a.ids
}

func (a *feedAPI) ListPage(ctx context.Context, collection string, q url.Values, dst []byte) ([]byte, error) {
	if err := a.takeRequest(ctx, collection, q); err != nil {
		return dst[:0], err
	}
	cursors, ids := a.offers()
	if _, id, one := strings.Cut(collection, "/"); one {
		items, _ := a.get([]string{id}, url.Values{})
		if len(items) == 0 {
			return dst[:0], statusError(http.StatusNotFound)
		}
		return slices.Clone(items[0]), nil
	}
	switch {
	case q.Has("ids") && ids:
		items, _ := a.get(strings.Split(q.Get("ids"), ","), url.Values{})
		return encodeList(v1.List{Items: []v1.Resource{}, Size: len(items)}, items), nil
	case q.Has("changed_since") && cursors:
		changed, next, err := a.since(q.Get("changed_since"))
		if err != nil {
			return dst[:0], err
		}
		items, removed := a.get(changed, q)
		return encodeList(v1.Changes{Items: []v1.Resource{}, Removed: removed, Cursor: next, Size: len(items)}, items), nil
	case cursors && a.body == nil:
		l, items := a.list(q)
		l.Cursor = a.now()
		return encodeList(l, items), nil
	}
	return a.page(q), nil
}

func (a *feedAPI) ListPageIf(ctx context.Context, collection string, q url.Values, etag string, dst []byte) ([]byte, io.ReadCloser, string, error) {
	tag := ""
	if a.tags {
		tag = `"` + a.now() + `"`
	}
	body, err := a.ListPage(ctx, collection, q, dst)
	if etag != "" && etag == tag && err == nil {
		return dst[:0], nil, tag, nil
	}
	return body, nil, tag, err
}

func (a *feedAPI) Watch(ctx context.Context, _ string, q url.Values, handle func(v1.WatchEvent) error) error {
	a.mu.Lock()
	a.watched++
	watches, cut := a.watches, a.cut
	a.mu.Unlock()
	if !watches {
		return errors.ErrUnsupported
	}
	a.fakeAPI.mu.Lock()
	before := a.before
	a.fakeAPI.mu.Unlock()
	if before != nil {
		if err := before(ctx, q); err != nil {
			return err
		}
	}
	cursor := q.Get("changed_since")
	for {
		a.mu.Lock()
		wake, silent := a.wake, a.silent
		a.mu.Unlock()
		if !silent {
			changed, next, err := a.since(cursor)
			if err != nil {
				return err
			}
			items, removed := a.get(changed, q)
			for _, r := range items {
				if err := handle(v1.WatchEvent{Type: v1.WatchChanged, Data: slices.Clone(r), Cursor: next}); err != nil {
					return err
				}
			}
			for _, id := range removed {
				if err := handle(v1.WatchEvent{Type: v1.WatchRemoved, Data: marshal(map[string]string{"id": id}), Cursor: next}); err != nil {
					return err
				}
			}
			cursor = next
			if err := handle(v1.WatchEvent{Type: v1.WatchBookmark, Data: []byte("{}"), Cursor: next}); err != nil {
				return err
			}
		}
		bookmark := time.NewTimer(10 * time.Second)
		select {
		case <-wake:
		case <-bookmark.C:
		case <-cut:
			return io.EOF
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func clusterIDs(n int) []v1.Resource {
	var all []v1.Resource
	for i := range n {
		all = append(all, cluster(clusterID(i), "Ready", 1, 1))
	}
	return all
}

func clusterID(i int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", i) }
