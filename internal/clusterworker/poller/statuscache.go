package poller

import (
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A statusCache holds each row as it was last read or written, and the state of its
// Shoot at that time. It holds the rows of the last list and later ones, without those
// whose Shoot is deleted. It is safe for concurrent use.
type statusCache struct {
	mu      sync.Mutex
	entries map[string]entry
}

type entry struct {
	row clusterworker.Row
	// uid and generation are those of the observed Shoot, empty and 0 if it was absent.
	uid        string
	generation int64
	operated   time.Time // time of Gardener's last operation
}

func (b *statusCache) getEntry(cluster string) (entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[cluster]
	return e, ok
}

// putEntry stores a row and its Shoot, nil if the Shoot is absent.
func (b *statusCache) putEntry(row *clusterworker.Row, o *shoot.Observed) {
	e := entry{row: *row}
	if o != nil {
		e.uid, e.generation = o.UID, o.Generation
		if o.LastOperation != nil {
			e.operated = o.LastOperation.Updated
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if row.Status == v1.ShootDeleted {
		delete(b.entries, row.ClusterID)
		return
	}
	b.entries[row.ClusterID] = e
}

// isNewOperation reports whether Gardener has operated on a known Shoot since the last
// observation.
func (b *statusCache) isNewOperation(clusterID string, operatedAt time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[clusterID]
	return ok && operatedAt.After(e.operated)
}

func (b *statusCache) removeEntry(cluster string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, cluster)
}

// retainOnly removes the entries of all other clusters.
func (b *statusCache) retainOnly(clusters map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.entries {
		if !clusters[id] {
			delete(b.entries, id)
		}
	}
}

// countByStatus counts the rows by status.
func (b *statusCache) countByStatus() map[v1.ShootStatus]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[v1.ShootStatus]int{}
	for id := range b.entries {
		counts[b.entries[id].row.Status]++
	}
	return counts
}
