package demo

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/liveview"
	"github.com/fleetloop/fleetloop/internal/fleetclient"
)

const (
	refreshEvery = 500 * time.Millisecond
	maxRecent    = 16
	maxUnready   = 16
)

// A Watch follows a fleet through its API, and the cloud events as they are
// confirmed. Its methods are safe for concurrent use.
type Watch struct {
	api     *fleetclient.Client
	started time.Time

	mu        sync.Mutex
	groups    []liveview.Group
	unready   []liveview.Unready
	names     map[string]string // by id
	recent    []liveview.CloudEvent
	published uint64
	adapters  func() []liveview.Adapter
	notice    string
	changed   chan struct{} // closed and replaced after each look
}

// NewWatch makes a watch. adapters gives the state of the adapters to show.
func NewWatch(api *fleetclient.Client, adapters func() []liveview.Adapter) *Watch {
	return &Watch{api: api, started: time.Now(), names: map[string]string{}, adapters: adapters, changed: make(chan struct{})}
}

// Note takes down a cloud event that the broker confirmed.
func (w *Watch) Note(id, reason string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published++
	name, ok := w.names[id]
	if !ok {
		name = id
	}
	w.recent = append(w.recent, liveview.CloudEvent{Time: at, Resource: name, Reason: reason})
	if extra := len(w.recent) - maxRecent; extra > 0 {
		w.recent = slices.Delete(w.recent, 0, extra)
	}
}

// Run looks at the fleet again and again until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look reads the whole fleet once. What could not be read keeps its last
// state, and the reason shows as the notice.
func (w *Watch) look(ctx context.Context) {
	var groups []liveview.Group
	var unready []liveview.Unready
	names := map[string]string{}
	err := func() error {
		for _, kind := range []struct{ collection, title, prefix string }{
			{v1.CollectionClusters, "Clusters", "cluster/"},
			{v1.CollectionNodePools, "Node pools", "nodepool/"},
		} {
			group := liveview.Group{Title: kind.title, Phases: map[v1.Phase]int{}}
			for r, err := range w.api.List(ctx, kind.collection, fleetclient.Query{}) {
				if err != nil {
					return err
				}
				name := kind.prefix + r.Name
				if owner := r.OwnerResource; owner != nil && names[owner.ID] != "" {
					name = kind.prefix + names[owner.ID][len("cluster/"):] + "/" + r.Name
				}
				names[r.ID] = name
				group.Phases[r.Status.Phase]++
				if r.Status.Phase != v1.PhaseReady {
					unready = append(unready, liveview.Unready{Resource: name, Phase: r.Status.Phase, Since: r.Status.LastTransitionTime})
				}
			}
			groups = append(groups, group)
		}
		return nil
	}()

	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.notice = err.Error()
		return
	}
	slices.SortStableFunc(unready, func(a, b liveview.Unready) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
	w.groups, w.names, w.notice = groups, names, ""
	w.unready = unready[:min(len(unready), maxUnready)]
	close(w.changed)
	w.changed = make(chan struct{})
}

// Snapshot is what there is to show now.
func (w *Watch) Snapshot() liveview.Snapshot {
	var adapters []liveview.Adapter
	if w.adapters != nil {
		adapters = w.adapters()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	recent := slices.Clone(w.recent)
	slices.Reverse(recent)
	return liveview.Snapshot{
		Now:       time.Now(),
		Started:   w.started,
		APIURL:    w.api.Endpoint(),
		Groups:    w.groups,
		Published: w.published,
		Recent:    recent,
		Unready:   slices.Clone(w.unready),
		Adapters:  adapters,
		Notice:    w.notice,
	}
}

// WaitReady waits until the fleet has at least size resources and all of them
// are Ready. It returns the cause of ctx if that ends first.
func (w *Watch) WaitReady(ctx context.Context, size int) error {
	for {
		w.mu.Lock()
		ready, total := 0, 0
		for _, g := range w.groups {
			for phase, n := range g.Phases {
				total += n
				if phase == v1.PhaseReady {
					ready += n
				}
			}
		}
		changed := w.changed
		w.mu.Unlock()
		if total >= size && ready == total {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}
