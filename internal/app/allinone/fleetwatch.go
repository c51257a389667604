package allinone

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	fleetclient "github.com/fleetloop/fleetloop/client"
)

const (
	watchInterval = 500 * time.Millisecond
	maxRecent     = 16
	maxUnready    = 16
	maxChanges    = 16
)

// FleetWatch follows a fleet through its API until all of it is Ready, and the confirmed cloud
// events. Its methods are safe for concurrent use.
type FleetWatch struct {
	api     *fleetclient.Client
	garden  bool // clusters become Shoots
	started time.Time

	mu        sync.Mutex
	seen      fleetObservation
	recent    []notedEvent
	published uint64
	adapters  func() []AdapterState
	notice    string
	changed   chan struct{} // closed and replaced after each observation
}

// notedEvent is a confirmed cloud event. Its resource has no name until an observation includes it.
type notedEvent struct {
	id    string
	event PublishedEvent
}

// unseenResource is the display name of a resource that no observation includes yet. Such a
// resource was created after the last one.
const unseenResource = "new resource"

// NewFleetWatch returns a watch. garden is true if clusters become Shoots, and adapters returns the
// state of the adapters.
func NewFleetWatch(api *fleetclient.Client, garden bool, adapters func() []AdapterState) *FleetWatch {
	return &FleetWatch{api: api, garden: garden, started: time.Now(), adapters: adapters, changed: make(chan struct{})}
}

// RecordPublished records a cloud event that the broker has confirmed.
func (w *FleetWatch) RecordPublished(resourceID, reason string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published++
	w.recent = append(w.recent, notedEvent{resourceID, PublishedEvent{Time: at, Resource: w.seen.names[resourceID], Reason: reason}})
	if extra := len(w.recent) - maxRecent; extra > 0 {
		w.recent = slices.Delete(w.recent, 0, extra)
	}
}

// Run observes the fleet periodically until ctx ends.
func (w *FleetWatch) Run(ctx context.Context) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		w.refreshObservation(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// refreshObservation reads the whole fleet once. State that cannot be read stays as it was, and the reason
// becomes the notice.
func (w *FleetWatch) refreshObservation(ctx context.Context) {
	seen, err := w.observeFleet(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil { // an interrupted observation has no result
			w.notice = err.Error()
		}
		return
	}
	w.seen, w.notice = seen, ""
	for i := range w.recent {
		if e := &w.recent[i]; e.event.Resource == "" {
			e.event.Resource = seen.names[e.id]
		}
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// fleetObservation is the state of the fleet in one observation.
type fleetObservation struct {
	groups  []ResourceGroup
	unready []UnreadyResource // oldest first
	names   map[string]string // by id
	shoots  map[v1.ShootStatus]int
	changes []RecentChange // newest first
	// Progress of the demo fleet, without other resources.
	demoReady, demoTotal int
}

func (w *FleetWatch) observeFleet(ctx context.Context) (fleetObservation, error) {
	s := fleetObservation{names: map[string]string{}}
	for _, kind := range []struct{ collection, title, prefix string }{
		{v1.CollectionClusters, "Clusters", clusterPrefix},
		{v1.CollectionNodePools, "Node pools", "nodepool/"},
	} {
		group := ResourceGroup{Title: kind.title, Phases: map[v1.Phase]int{}}
		for r, err := range w.api.Collection(kind.collection).List(ctx, fleetclient.ListOptions{}) {
			if err != nil {
				return fleetObservation{}, err
			}
			group.Phases[r.Status.Phase]++
			s.addResource(kind.prefix, r)
		}
		s.groups = append(s.groups, group)
	}
	if w.garden {
		s.shoots = map[v1.ShootStatus]int{}
		for c, err := range w.api.Syncs().List(ctx, fleetclient.SyncOptions{}) {
			if err != nil {
				return fleetObservation{}, err
			}
			s.shoots[c.ShootStatus]++
		}
	}
	if err := s.fetchRecentChanges(ctx, w.api); err != nil {
		return fleetObservation{}, err
	}
	slices.SortStableFunc(s.unready, func(a, b UnreadyResource) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
	s.unready = s.unready[:min(len(s.unready), maxUnready)]
	return s, nil
}

// fetchRecentChanges reads the latest changes.
func (s *fleetObservation) fetchRecentChanges(ctx context.Context, api *fleetclient.Client) error {
	page, err := api.ChangeEvents().Page(ctx, fleetclient.ChangeEventOptions{PageSize: maxChanges}, "")
	if err != nil {
		return err
	}
	for i := range page.Items {
		e := &page.Items[i]
		s.changes = append(s.changes, RecentChange{
			Time: e.Timestamp.Local(), Summary: cmp.Or(e.Summary, e.Action), Failed: e.Outcome == changeevent.OutcomeFailed,
		})
	}
	return nil
}

const clusterPrefix = "cluster/"

func (s *fleetObservation) addResource(kindPrefix string, r v1.Resource) {
	name := kindPrefix + r.Name
	if owner := r.OwnerResource; owner != nil && s.names[owner.ID] != "" {
		name = kindPrefix + strings.TrimPrefix(s.names[owner.ID], clusterPrefix) + "/" + r.Name
	}
	s.names[r.ID] = name
	ready := r.Status.Phase == v1.PhaseReady
	if !ready {
		s.unready = append(s.unready, UnreadyResource{Resource: name, Phase: r.Status.Phase, Since: r.Status.LastTransitionTime})
	}
	if r.Labels[demoLabel] != demoValue {
		return
	}
	s.demoTotal++
	if ready {
		s.demoReady++
	}
}

// Snapshot returns the current state for display.
func (w *FleetWatch) Snapshot() FleetSnapshot {
	var adapters []AdapterState
	if w.adapters != nil {
		adapters = w.adapters()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	recent := make([]PublishedEvent, 0, len(w.recent))
	for _, noted := range slices.Backward(w.recent) {
		noted.event.Resource = cmp.Or(noted.event.Resource, unseenResource)
		recent = append(recent, noted.event)
	}
	return FleetSnapshot{
		Now:       time.Now(),
		Started:   w.started,
		APIURL:    w.api.Endpoint(),
		Groups:    w.seen.groups,
		Shoots:    maps.Clone(w.seen.shoots),
		Published: w.published,
		Recent:    recent,
		Changes:   slices.Clone(w.seen.changes),
		Unready:   slices.Clone(w.seen.unready),
		Adapters:  adapters,
		Notice:    w.notice,
	}
}

// WaitDemoReady waits until the demo fleet has at least leastResources resources and all of them are Ready. It
// returns the cause of ctx if that ends first.
func (w *FleetWatch) WaitDemoReady(ctx context.Context, leastResources int) error {
	for {
		w.mu.Lock()
		seen, changed := w.seen, w.changed
		w.mu.Unlock()
		if seen.demoTotal >= leastResources && seen.demoReady == seen.demoTotal {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}
