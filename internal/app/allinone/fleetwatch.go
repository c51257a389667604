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
	api      *fleetclient.Client
	garden   bool                  // clusters become Shoots
	adapters func() []AdapterState // may be nil
	started  time.Time

	mu        sync.Mutex // guards all fields below
	seen      fleetObservation
	recent    []recordedEvent // oldest first
	published uint64
	notice    string
	changed   chan struct{} // closed and replaced after each observation
}

// recordedEvent is a confirmed cloud event. Its resource has no name until an observation includes it.
type recordedEvent struct {
	resourceID string
	event      PublishedEvent
}

// unseenResource is the display name of a resource that no observation includes yet. Such a
// resource was created after the last one.
const unseenResource = "new resource"

// NewFleetWatch returns a watch. garden is true if clusters become Shoots, and adapters returns the
// state of the adapters.
func NewFleetWatch(api *fleetclient.Client, garden bool, adapters func() []AdapterState) *FleetWatch {
	return &FleetWatch{api: api, garden: garden, adapters: adapters, started: time.Now(), changed: make(chan struct{})}
}

// RecordPublished records a cloud event that the broker has confirmed.
func (w *FleetWatch) RecordPublished(resourceID, reason string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published++
	event := PublishedEvent{Time: at, Resource: w.seen.names[resourceID], Reason: reason}
	w.recent = append(w.recent, recordedEvent{resourceID, event})
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
	// Name the resources that were created after the last observation.
	for i := range w.recent {
		recorded := &w.recent[i]
		if recorded.event.Resource == "" {
			recorded.event.Resource = seen.names[recorded.resourceID]
		}
	}
	// Wake all that wait for an observation.
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

// observedKind is a kind of resource that the view shows.
type observedKind struct {
	collection string
	title      string
	namePrefix string // before the name of a resource of the kind
}

const clusterPrefix = "cluster/"

// observedKinds returns the kinds in the order of the view. Clusters come first, because the display name of a node
// pool contains that of its cluster.
func observedKinds() []observedKind {
	return []observedKind{
		{v1.CollectionClusters, "Clusters", clusterPrefix},
		{v1.CollectionNodePools, "Node pools", "nodepool/"},
	}
}

// observeFleet reads the whole fleet.
func (w *FleetWatch) observeFleet(ctx context.Context) (fleetObservation, error) {
	observation := fleetObservation{names: map[string]string{}}
	for _, kind := range observedKinds() {
		if err := observation.addResourcesOfKind(ctx, w.api, kind); err != nil {
			return fleetObservation{}, err
		}
	}
	observation.keepOldestUnready()

	var err error
	if w.garden {
		if observation.shoots, err = countShoots(ctx, w.api); err != nil {
			return fleetObservation{}, err
		}
	}
	if observation.changes, err = fetchRecentChanges(ctx, w.api); err != nil {
		return fleetObservation{}, err
	}
	return observation, nil
}

// addResourcesOfKind reads all resources of a kind, and adds them and their counts by phase.
func (o *fleetObservation) addResourcesOfKind(ctx context.Context, api *fleetclient.Client, kind observedKind) error {
	group := ResourceGroup{Title: kind.title, Phases: map[v1.Phase]int{}}
	for resource, err := range api.Collection(kind.collection).List(ctx, fleetclient.ListOptions{}) {
		if err != nil {
			return err
		}
		group.Phases[resource.Status.Phase]++
		o.addResource(kind.namePrefix, resource)
	}
	o.groups = append(o.groups, group)
	return nil
}

// addResource adds the name of a resource, its progress if it is one of the demo, and the resource itself if it is
// not ready.
func (o *fleetObservation) addResource(displayPrefix string, resource v1.Resource) {
	name := displayPrefix + resource.Name
	if owner := resource.OwnerResource; owner != nil && o.names[owner.ID] != "" {
		name = displayPrefix + strings.TrimPrefix(o.names[owner.ID], clusterPrefix) + "/" + resource.Name
	}
	o.names[resource.ID] = name

	status := resource.Status
	ready := status.Phase == v1.PhaseReady
	if !ready {
		o.unready = append(o.unready, UnreadyResource{Resource: name, Phase: status.Phase, Since: status.LastTransitionTime})
	}
	if resource.Labels[demoLabel] != demoValue {
		return
	}
	o.demoTotal++
	if ready {
		o.demoReady++
	}
}

// keepOldestUnready sorts the resources that are not ready by age and drops those that the view never shows.
func (o *fleetObservation) keepOldestUnready() {
	slices.SortStableFunc(o.unready, func(a, b UnreadyResource) int { return a.Since.Compare(b.Since) })
	o.unready = o.unready[:min(len(o.unready), maxUnready)]
}

// countShoots counts the clusters by the status of their Shoots.
func countShoots(ctx context.Context, api *fleetclient.Client) (map[v1.ShootStatus]int, error) {
	counts := map[v1.ShootStatus]int{}
	for cluster, err := range api.Syncs().List(ctx, fleetclient.SyncOptions{}) {
		if err != nil {
			return nil, err
		}
		counts[cluster.ShootStatus]++
	}
	return counts, nil
}

// fetchRecentChanges returns the latest changes, the newest first.
func fetchRecentChanges(ctx context.Context, api *fleetclient.Client) ([]RecentChange, error) {
	page, err := api.ChangeEvents().Page(ctx, fleetclient.ChangeEventOptions{PageSize: maxChanges}, "")
	if err != nil {
		return nil, err
	}
	var changes []RecentChange
	for i := range page.Items {
		event := &page.Items[i]
		changes = append(changes, RecentChange{
			Time:    event.Timestamp.Local(),
			Summary: cmp.Or(event.Summary, event.Action),
			Failed:  event.Outcome == changeevent.OutcomeFailed,
		})
	}
	return changes, nil
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
	for _, recorded := range slices.Backward(w.recent) {
		event := recorded.event
		event.Resource = cmp.Or(event.Resource, unseenResource)
		recent = append(recent, event)
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
