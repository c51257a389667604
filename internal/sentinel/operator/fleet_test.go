package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
)

// ErrAway is the error of an unreachable address.
var ErrAway = errors.New("it is away")

// A Fleet is one fleet, served at any number of addresses.
type Fleet struct {
	mu        sync.Mutex
	resources map[string]v1.Resource
	opened    []string
	away      map[string]bool
	panics    map[string]bool
	lists     int
}

// NewFleet returns a fleet of clusters without reports. A label may follow an id: "a region=eu".
func NewFleet(ids ...string) *Fleet {
	f := &Fleet{resources: map[string]v1.Resource{}, away: map[string]bool{}, panics: map[string]bool{}}
	for _, id := range ids {
		f.Add(id)
	}
	return f
}

// Add adds a cluster.
func (f *Fleet) Add(idAndLabel string) {
	id, label, _ := strings.Cut(idAndLabel, " ")
	r := v1.Resource{ID: id, Name: id, Kind: v1.KindCluster, Generation: 1, CreatedTime: time.Now(), UpdatedTime: time.Now()}
	if key, value, ok := strings.Cut(label, "="); ok {
		r.Labels = map[string]string{key: value}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resources[id] = r
}

// BumpGenerations gives clusters a new generation; without ids, all clusters.
func (f *Fleet) BumpGenerations(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, r := range f.resources {
		if len(ids) == 0 || slices.Contains(ids, id) {
			r.Generation++
			r.UpdatedTime = time.Now()
			f.resources[id] = r
		}
	}
}

// Generations returns the generations of all clusters.
func (f *Fleet) Generations() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]int64{}
	for id, r := range f.resources {
		all[id] = r.Generation
	}
	return all
}

// SetAway makes an address unreachable, or reachable again.
func (f *Fleet) SetAway(endpoint string, away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away[endpoint] = away
}

// SetPanic makes the client for an address panic.
func (f *Fleet) SetPanic(endpoint string, panics bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.panics[endpoint] = panics
}

// Opened returns the addresses for which clients were opened, in order.
func (f *Fleet) Opened() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.opened)
}

// Lists returns how often the fleet was listed.
func (f *Fleet) Lists() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists
}

// Open opens a client.
func (f *Fleet) Open(cfg sentinel.API) (operator.FleetAPI, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened = append(f.opened, cfg.Endpoint)
	return &fleetClient{f, cfg.Endpoint}, nil
}

type fleetClient struct {
	fleet    *Fleet
	endpoint string
}

// ListPage returns all matching clusters in one page.
func (c *fleetClient) ListPage(_ context.Context, _ string, q url.Values, dst []byte) ([]byte, error) {
	f := c.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics[c.endpoint] {
		panic("a client of " + c.endpoint + " that panics")
	}
	if f.away[c.endpoint] {
		return nil, fmt.Errorf("%s: %w", c.endpoint, ErrAway)
	}
	f.lists++
	sel, err := selector.Parse(q.Get("labels"))
	if err != nil {
		return nil, err
	}
	l := v1.List{Items: []v1.Resource{}}
	for _, r := range f.resources {
		if sel.Matches(selector.Map(r.Labels)) {
			l.Items = append(l.Items, r)
		}
	}
	slices.SortFunc(l.Items, func(a, b v1.Resource) int { return strings.Compare(a.ID, b.ID) })
	l.Size = len(l.Items)
	page, err := json.Marshal(l)
	return append(dst[:0], page...), err
}

// ListPageIf supports no tags.
func (c *fleetClient) ListPageIf(ctx context.Context, collection string, q url.Values, _ string, dst []byte) (body []byte, rest io.ReadCloser, tag string, err error) {
	body, err = c.ListPage(ctx, collection, q, dst)
	return body, nil, "", err
}

// Watch is not supported.
func (*fleetClient) Watch(context.Context, string, url.Values, func(v1.WatchEvent) error) error {
	return errors.ErrUnsupported
}

// CloseIdle does nothing.
func (*fleetClient) CloseIdle() {}
