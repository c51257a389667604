package fleetapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
)

// TestWatchersEndUpWithTheTable runs writers while watchers disconnect and resume with their last
// cursor. In the end each has the content of a list.
func TestWatchersEndUpWithTheTable(t *testing.T) {
	o := options{cfg: defaults()}
	o.cfg.RequiredAdapters.Clusters = nil // deleted resources are gone at once
	f := newFixtureWith(t, o)
	client, err := fleetclient.New(fleetclient.Config{Endpoint: f.url + v1.BasePath})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	begin := f.list("clusters?limit=1").Cursor
	ctx, stop := context.WithCancel(t.Context())
	var copies []*tableCopy
	var watchers, writers errgroup.Group
	for i, labels := range []string{"", "zone=x", "zone!=x", "zone in (x,y)", ""} {
		c := &tableCopy{labels: labels, cursor: begin, dice: rand.New(rand.NewPCG(uint64(i), 1)), rows: map[string]string{}}
		copies = append(copies, c)
		watchers.Go(func() error { return c.follow(ctx, client) })
	}
	for i := range uint64(4) {
		writers.Go(func() error {
			return (&changer{dice: rand.New(rand.NewPCG(i, 2)), client: client}).change(ctx, fmt.Sprint("c-", i))
		})
	}
	if err := writers.Wait(); err != nil {
		t.Error(err)
	}
	f.create("clusters", "c-last", map[string]string{"zone": "x"})
	for _, c := range copies {
		want := map[string]string{}
		for _, r := range f.list("clusters?limit=500&labels=" + url.QueryEscape(c.labels)).Items {
			want[r.ID] = stateOf(&r)
		}
		for range f.ticks(50*time.Millisecond, 200) {
			if c.diff(want) == "" {
				break
			}
		}
		if diff := c.diff(want); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.labels, diff)
		}
	}
	stop()
	if err := watchers.Wait(); err != nil {
		t.Error(err)
	}
}

func stateOf(r *v1.Resource) string { return fmt.Sprint(r.Name, r.Generation, r.Labels) }

// A tableCopy is a watcher's copy of a collection.
type tableCopy struct {
	labels string
	dice   *rand.Rand
	cursor string

	mu   sync.Mutex
	rows map[string]string // by id
}

func (c *tableCopy) diff(want map[string]string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Diff(want, c.rows)
}

var errBrokenOff = errors.New("broken off")

// follow watches and disconnects after some events, until ctx ends.
func (c *tableCopy) follow(ctx context.Context, client *fleetclient.Client) error {
	for ctx.Err() == nil {
		left := 1 + c.dice.IntN(20)
		err := client.Raw().Watch(ctx, v1.CollectionClusters, url.Values{"labels": {c.labels}, "changed_since": {c.cursor}}, func(e v1.WatchEvent) error {
			if left--; left < 0 {
				return errBrokenOff
			}
			c.cursor = e.Cursor
			return c.take(e)
		})
		if ctx.Err() == nil && !errors.Is(err, errBrokenOff) {
			return err
		}
	}
	return nil
}

func (c *tableCopy) take(e v1.WatchEvent) error {
	var r v1.Resource
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Type {
	case v1.WatchChanged:
		c.rows[r.ID] = stateOf(&r)
	case v1.WatchRemoved:
		delete(c.rows, r.ID)
	case v1.WatchBookmark, v1.WatchError:
	}
	return nil
}

// A changer creates, changes and deletes clusters.
type changer struct {
	dice   *rand.Rand
	client *fleetclient.Client
	ids    []string
}

func (c *changer) change(ctx context.Context, name string) error {
	const steps, most = 150, 10
	for i := range steps {
		zones := map[string]string{"zone": []string{"x", "y", "z"}[c.dice.IntN(3)]}
		var err error
		var r v1.Resource
		n := c.dice.IntN(100)
		at := 0
		if len(c.ids) > 0 {
			at = c.dice.IntN(len(c.ids))
		}
		switch {
		case len(c.ids) == 0 || n < 10 && len(c.ids) < most:
			r, err = c.client.Clusters().Create(ctx, v1.CreateRequest{Name: fmt.Sprint(name, "-", i), Labels: zones, Spec: []byte(`{}`)})
			c.ids = append(c.ids, r.ID)
		case n < 20:
			_, err = c.client.Clusters().Delete(ctx, c.ids[at])
			c.ids = append(c.ids[:at], c.ids[at+1:]...)
		case n < 60:
			_, err = c.client.Clusters().Patch(ctx, c.ids[at], v1.PatchRequest{Labels: &zones})
		default:
			_, err = c.client.Clusters().Patch(ctx, c.ids[at], v1.PatchRequest{Spec: fmt.Appendf(nil, `{"n":%d}`, i)})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
