package simulation

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// A Fleet holds the data of a fleet API: one collection with its sequence of revisions. Commits are
// serial.
type Fleet struct {
	selector selector.Selector // the sentinel's selector, for the history
	history  *History          // nil means none

	mu     sync.Mutex
	offset time.Duration // of the API's clock against the local clock
	rows   map[string]*row
	ids    []string // sorted
	log    []change
	seq    int64 // of the last commit
	oldest int64 // earlier cursors are too old
	epoch  int
	wake   chan struct{} // closed at the next commit

	// Late hides a commit from the feed for this time, while later ones are visible, as in a feed
	// without an order of commits. It is a planted fault.
	Late time.Duration
}

type row struct {
	v1.Resource
	seq int64 // of its last change
}

// A change is one commit.
type change struct {
	seq       int64
	at        time.Time
	id        string
	relabeled bool
}

// NewFleet returns an empty fleet. If h is not nil, versions are recorded there, with their match
// of the selector.
func NewFleet(sel selector.Selector, h *History) *Fleet {
	return &Fleet{selector: sel, history: h, rows: map[string]*row{}, wake: make(chan struct{})}
}

// apiNow returns the time of the API's clock, in the precision of a database.
func (f *Fleet) apiNow() time.Time { return time.Now().Add(f.offset).UTC().Truncate(time.Microsecond) }

// SetClock sets the offset of the API's clock against the local clock.
func (f *Fleet) SetClock(offset time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offset = offset
}

// CreateSession adds a resource, unless it exists.
func (f *Fleet) CreateSession(id string, labels map[string]string) (created bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rows[id] != nil {
		return false
	}
	now := f.apiNow()
	r := &row{Resource: v1.Resource{
		ID: id, Kind: v1.KindCluster, Name: "c-" + id, Href: v1.BasePath + "/clusters/" + id,
		Labels: labels, Spec: json.RawMessage(`{}`), Generation: 1, CreatedTime: now, UpdatedTime: now,
		Status: v1.Status{Phase: v1.PhasePending, LastUpdatedTime: now, LastTransitionTime: now},
	}}
	r.Metadata = v1.Metadata{Name: r.Name, Labels: labels}
	f.rows[id] = r
	at, _ := slices.BinarySearch(f.ids, id)
	f.ids = slices.Insert(f.ids, at, id)
	f.commitChange(r, true, "created")
	return true
}

// Load adds many resources at once: ids must be sorted, and the fleet empty. edit is called for
// each before it is added.
func (f *Fleet) Load(ids []string, edit func(i int, r *v1.Resource)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.apiNow()
	f.ids = slices.Clone(ids)
	for i, id := range ids {
		r := &row{Resource: v1.Resource{
			ID: id, Kind: v1.KindCluster, Name: id, Spec: json.RawMessage(`{}`), Generation: 1, CreatedTime: now, UpdatedTime: now,
			Status: v1.Status{Phase: v1.PhaseReady, ObservedGeneration: 1, LastUpdatedTime: now, LastTransitionTime: now},
		}}
		edit(i, &r.Resource)
		f.seq++
		r.seq = f.seq
		f.rows[id] = r
	}
	f.oldest = f.seq
}

// editResource changes an existing resource.
func (f *Fleet) editResource(id, why string, change func(r *row, now time.Time) (relabeled bool)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rows[id]
	if r == nil {
		return false
	}
	relabeled := change(r, f.apiNow())
	f.commitChange(r, relabeled, why)
	return true
}

// Patch changes the spec of a resource. demote says whether the phase changes too.
func (f *Fleet) Patch(id string, demote bool) (found bool) {
	return f.editResource(id, "patched", func(r *row, now time.Time) bool {
		r.Generation++
		r.UpdatedTime = now
		if demote && r.Status.Phase == v1.PhaseReady {
			r.setPhase(v1.PhaseProvisioning, now)
		}
		return false
	})
}

// Relabel replaces the labels of a resource.
func (f *Fleet) Relabel(id string, labels map[string]string) (found bool) {
	return f.editResource(id, "relabelled", func(r *row, now time.Time) bool {
		r.Labels, r.Metadata.Labels, r.UpdatedTime = labels, labels, now
		return true
	})
}

// Report simulates a report of the adapters: the observed generation, and whether the resource is
// healthy. A resource that is being deleted is removed once they have observed that.
func (f *Fleet) Report(id string, observedGeneration int64, ready bool) (found bool) {
	f.mu.Lock()
	r := f.rows[id]
	finalized := r != nil && r.DeletedTime != nil && observedGeneration >= r.Generation
	f.mu.Unlock()
	if finalized {
		return f.Remove(id)
	}
	return f.editResource(id, "reported", func(r *row, now time.Time) bool {
		r.Status.ObservedGeneration = max(r.Status.ObservedGeneration, min(observedGeneration, r.Generation))
		r.Status.LastUpdatedTime = now
		switch {
		case r.DeletedTime != nil:
		case r.Status.ObservedGeneration < r.Generation:
			r.setPhase(v1.PhaseProvisioning, now)
		case ready:
			r.setPhase(v1.PhaseReady, now)
		default:
			r.setPhase(v1.PhaseFailed, now)
		}
		return false
	})
}

func (r *row) setPhase(p v1.Phase, now time.Time) {
	if r.Status.Phase != p {
		r.Status.Phase, r.Status.LastTransitionTime = p, now
	}
}

// MarkDeleted requests the deletion of a resource, which its adapters must confirm.
func (f *Fleet) MarkDeleted(id string) (found bool) {
	return f.editResource(id, "deletion asked for", func(r *row, now time.Time) bool {
		if r.DeletedTime == nil {
			r.Generation++
			r.DeletedTime, r.UpdatedTime = &now, now
			r.setPhase(v1.PhaseDeleting, now)
		}
		return false
	})
}

// Remove removes a resource at once.
func (f *Fleet) Remove(id string) (found bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rows[id]
	if r == nil {
		return false
	}
	delete(f.rows, id)
	at, _ := slices.BinarySearch(f.ids, id)
	f.ids = slices.Delete(f.ids, at, at+1)
	f.commitChange(r, true, "removed")
	return true
}

// commitChange assigns the next number of the sequence to a change.
func (f *Fleet) commitChange(r *row, relabeled bool, why string) {
	f.seq++
	r.seq = f.seq
	f.log = append(f.log, change{seq: f.seq, at: time.Now(), id: r.ID, relabeled: relabeled})
	close(f.wake)
	f.wake = make(chan struct{})
	if f.history == nil {
		return
	}
	f.history.RecordVersion(Version{
		At: time.Now(), Resource: r.ID, Gone: f.rows[r.ID] == nil, Matches: f.selector.Matches(selector.Map(r.Labels)),
		Generation: r.Generation, Observed: r.Status.ObservedGeneration, Phase: string(r.Status.Phase),
		Updated: r.UpdatedTime, LastUpdated: r.Status.LastUpdatedTime,
	}, why)
}

// IDs returns the ids of all resources, in order.
func (f *Fleet) IDs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ids)
}

// Get returns the current state of a resource.
func (f *Fleet) Get(id string) (v1.Resource, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rows[id]
	if r == nil {
		return v1.Resource{}, false
	}
	return r.Resource, true // its maps are replaced, never modified
}

// ExpireCursors makes every existing cursor too old.
func (f *Fleet) ExpireCursors() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++ // so that the last cursor is too old as well
	f.oldest = f.seq
	f.log = nil
}

// pageAfter returns a page of selected resources, in order of id.
func (f *Fleet) pageAfter(sel selector.Selector, after string, limit int) (items []v1.Resource, more bool, seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, found := slices.BinarySearch(f.ids, after)
	if found {
		from++
	}
	for _, id := range f.ids[from:] {
		r := f.rows[id]
		if !sel.Matches(selector.Map(r.Labels)) {
			continue
		}
		if len(items) == limit {
			return items, true, f.seq
		}
		items = append(items, r.Resource)
	}
	return items, false, f.seq
}

// numberedPage returns a page by its number, and the total number of resources.
func (f *Fleet) numberedPage(sel selector.Selector, page, size int) (items []v1.Resource, total int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := int64(page-1) * int64(size)
	for _, id := range f.ids {
		r := f.rows[id]
		if !sel.Matches(selector.Map(r.Labels)) {
			continue
		}
		if total >= from && total < from+int64(size) {
			items = append(items, r.Resource)
		}
		total++
	}
	return items, total
}

// stateTag identifies the state of the fleet.
func (f *Fleet) stateTag() (epoch int, seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch, f.seq
}
