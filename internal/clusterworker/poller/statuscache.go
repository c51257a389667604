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

func (b *statusCache) getEntry(clusterID string) (cached entry, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[clusterID]
	return e, ok
}

// storeRowAndShoot stores a row and its Shoot, nil if the Shoot is absent.
func (b *statusCache) storeRowAndShoot(row *clusterworker.Row, observed *shoot.Observed) {
	e := entry{row: *row}
	if observed != nil {
		e.uid, e.generation = observed.UID, observed.Generation
		if observed.LastOperation != nil {
			e.operated = observed.LastOperation.Updated
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

// isNewerOperation reports whether Gardener has operated on a known Shoot since the last
// observation.
func (b *statusCache) isNewerOperation(clusterID string, operatedAt time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[clusterID]
	return ok && operatedAt.After(e.operated)
}

func (b *statusCache) removeEntry(clusterID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, clusterID)
}

// removeAllExcept removes the entries of all other clusters.
func (b *statusCache) removeAllExcept(keepClusterIDs map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.entries {
		if !keepClusterIDs[id] {
			delete(b.entries, id)
		}
	}
}

// countRowsByStatus counts the rows by status.
func (b *statusCache) countRowsByStatus() map[v1.ShootStatus]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[v1.ShootStatus]int{}
	for id := range b.entries {
		counts[b.entries[id].row.Status]++
	}
	return counts
}
