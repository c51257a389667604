package inspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fleet is a fleet API in memory with pages by token and a log of changes.
type fleet struct {
	collections map[string]map[string]v1.Resource
	log         []change
	quiet       bool // it has no cursors

	// before is called with each request; its error is the answer.
	before   func(path string, q url.Values) error
	requests []string
}

type change struct{ collection, id string }

func newFleet() *fleet { return &fleet{collections: map[string]map[string]v1.Resource{}} }

func (f *fleet) put(collection string, list ...v1.Resource) {
	if f.collections[collection] == nil {
		f.collections[collection] = map[string]v1.Resource{}
	}
	for _, r := range list {
		f.collections[collection][r.ID] = r
		f.log = append(f.log, change{collection, r.ID})
	}
}

func (f *fleet) remove(collection, id string) {
	delete(f.collections[collection], id)
	f.log = append(f.log, change{collection, id})
}

type statusError int

func (e statusError) Error() string   { return fmt.Sprint("status ", int(e)) }
func (e statusError) StatusCode() int { return int(e) }

var errDown = errors.New("the API is down")

// ListPage serves a request.
func (f *fleet) ListPage(ctx context.Context, path string, q url.Values, dst []byte) ([]byte, error) {
	f.requests = append(f.requests, path+"?"+q.Encode())
	if f.before != nil {
		if err := f.before(path, q); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	collection, id, single := strings.Cut(path, "/")
	all, ok := f.collections[collection]
	if !ok {
		return nil, statusError(404)
	}
	var answer any
	switch {
	case single:
		r, found := all[id]
		if !found {
			return nil, statusError(404)
		}
		answer = r
	case q.Has("changed_since"):
		answer = f.changes(collection, q)
	case q.Has("search"):
		wanted := strings.TrimSuffix(strings.TrimPrefix(q.Get("search"), "name = '"), "'")
		var list v1.List
		for _, r := range all {
			if r.Name == wanted {
				list.Items = append(list.Items, r)
			}
		}
		slices.SortFunc(list.Items, func(a, b v1.Resource) int { return strings.Compare(a.ID, b.ID) })
		answer = list
	default:
		answer = f.list(all, q)
	}
	text, err := json.Marshal(answer)
	return append(dst[:0], text...), err
}

// ListPageIf supports no tags.
func (f *fleet) ListPageIf(ctx context.Context, path string, q url.Values, _ string, dst []byte) ([]byte, io.ReadCloser, string, error) {
	body, err := f.ListPage(ctx, path, q, dst)
	return body, nil, "", err
}

func (f *fleet) list(all map[string]v1.Resource, q url.Values) v1.List {
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil {
		panic(err)
	}
	var l v1.List
	for _, r := range all {
		if r.ID > q.Get("continue") {
			l.Items = append(l.Items, r)
		}
	}
	slices.SortFunc(l.Items, func(a, b v1.Resource) int { return strings.Compare(a.ID, b.ID) })
	if !f.quiet {
		l.Cursor = strconv.Itoa(len(f.log))
	}
	if len(l.Items) > limit {
		l.Items = l.Items[:limit]
		l.Continue = l.Items[limit-1].ID
	}
	l.Size = len(l.Items)
	return l
}

// changes returns two changes per page, so that there are several pages.
func (f *fleet) changes(collection string, q url.Values) v1.Changes {
	since, err := strconv.Atoi(q.Get("changed_since"))
	if err != nil {
		panic(err)
	}
	until := min(len(f.log), since+2)
	c := v1.Changes{Cursor: strconv.Itoa(until), More: until < len(f.log)}
	seen := map[string]bool{}
	for _, e := range f.log[since:until] {
		if e.collection != collection || seen[e.id] {
			continue
		}
		seen[e.id] = true
		if r, ok := f.collections[collection][e.id]; ok {
			c.Items = append(c.Items, r)
		} else {
			c.Removed = append(c.Removed, e.id)
		}
	}
	return c
}

// resource returns a resource that was reported on some time ago.
func resource(id string, phase v1.Phase, ago time.Duration, labels ...string) v1.Resource {
	now := time.Now()
	r := v1.Resource{
		ID: id, Kind: v1.KindCluster, Name: "name-" + id, Labels: map[string]string{}, Generation: 1,
		CreatedTime: now.Add(-24 * time.Hour), UpdatedTime: now.Add(-24 * time.Hour),
		Status: v1.Status{Phase: phase, ObservedGeneration: 1, LastUpdatedTime: now.Add(-ago), LastTransitionTime: now.Add(-ago)},
	}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		r.Labels[key] = value
	}
	return r
}

// watch returns a watch of clusters, with a selector and fields of message_data.
func watch(t interface {
	Helper()
	Fatal(...any)
}, name string, lister source.Lister, sel string, data ...settings.MapEntry,
) *inspect.Watch {
	t.Helper()
	parsed, err := selector.Parse(sel)
	if err != nil {
		t.Fatal(err)
	}
	builder, err := payload.New(data, payload.SnakeCase)
	if err != nil {
		t.Fatal(err)
	}
	ages := decision.Ages{NotReady: 10 * time.Second, Ready: 30 * time.Minute}
	return &inspect.Watch{
		Name: name, Source: lister, Endpoint: "http://fleet.example", Collection: v1.CollectionClusters,
		Selector: parsed, PageSize: 3, Timeout: 10 * time.Second,
		Profile: "generation-then-age", Decider: decision.NewGenerationThenAgeProfile(ages), Ages: ages, Payload: builder, Certain: true,
	}
}
