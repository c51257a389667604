package poller

import (
	"maps"
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
	entries map[string]cacheEntry
}

// A cacheEntry is a cached row.
type cacheEntry struct {
	row clusterworker.Row
	// uid and generation are those of the observed Shoot, empty and 0 if it was absent.
	uid           string
	generation    int64
	lastOperation time.Time // of Gardener
	// savedAt is when a change of the status was written, zero if this leader wrote none or a later write failed.
	savedAt time.Time
}

func (c *statusCache) getEntry(clusterID string) (entry cacheEntry, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, ok = c.entries[clusterID]
	return entry, ok
}

// storeRowAndShoot stores a row that was read and its Shoot, nil if the Shoot is absent.
func (c *statusCache) storeRowAndShoot(row *clusterworker.Row, observed *shoot.Observed) {
	entry, _ := c.getEntry(row.ClusterID)
	c.storeSavedRowAndShoot(row, observed, entry.savedAt)
}

// storeSavedRowAndShoot stores a row whose status was written at a time, and its Shoot, nil if the Shoot is absent.
func (c *statusCache) storeSavedRowAndShoot(row *clusterworker.Row, observed *shoot.Observed, savedAt time.Time) {
	entry := cacheEntry{row: *row, savedAt: savedAt}
	if observed != nil {
		entry.uid, entry.generation = observed.UID, observed.Generation
		if observed.LastOperation != nil {
			entry.lastOperation = observed.LastOperation.Updated
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if row.Status == v1.ShootDeleted {
		delete(c.entries, row.ClusterID)
		return
	}
	c.entries[row.ClusterID] = entry
}

// recordLastOperation records the last operation of a known Shoot whose progress is written later. Otherwise the lag of the
// next write would be measured from it.
func (c *statusCache) recordLastOperation(clusterID string, observed *shoot.Observed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, ok := c.entries[clusterID]
	if !ok || observed.LastOperation == nil {
		return
	}
	entry.lastOperation = observed.LastOperation.Updated
	c.entries[clusterID] = entry
}

// isNewerOperation reports whether Gardener has operated on a known Shoot since the last
// observation.
func (c *statusCache) isNewerOperation(clusterID string, operatedAt time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, ok := c.entries[clusterID]
	return ok && operatedAt.After(entry.lastOperation)
}

func (c *statusCache) removeEntry(clusterID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, clusterID)
}

// removeAllExcept removes the entries of all other clusters.
func (c *statusCache) removeAllExcept(keepClusterIDs map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.entries, func(id string, _ cacheEntry) bool { return !keepClusterIDs[id] })
}

// countRowsByStatus counts the rows by status.
func (c *statusCache) countRowsByStatus() map[v1.ShootStatus]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := map[v1.ShootStatus]int{}
	for _, entry := range c.entries {
		counts[entry.row.Status]++
	}
	return counts
}
