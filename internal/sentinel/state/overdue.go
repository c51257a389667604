package state

import (
	"cmp"
	"slices"
)

// An overdueQueue finds the entries that are overdue longest, without keeping all of them.
type overdueQueue struct {
	shards *[indexShards]indexShard
	limit  int
	found  []overdueEntry // up to twice the limit
	before uint32         // entries that are due then or later are not among the first

	overdue OverdueCount // of the scanned shards, including those found
}

type overdueEntry struct {
	due   uint32
	slot  int32
	shard uint8
}

// countAndKeepMostOverdue scans a shard and counts its overdue resources. Afterwards the shard's earliest is
// that of the other resources: those in the queue are taken, and those that are left behind lower
// it again.
func (q *overdueQueue) countAndKeepMostOverdue(shard int, nowStep uint32) {
	s := &q.shards[shard]
	s.earliest = neverDue
	for i, due := range s.due {
		if due > nowStep {
			s.earliest = min(s.earliest, due)
			continue
		}
		if s.state[i]&slotReady != 0 {
			q.overdue.Ready++
		} else {
			q.overdue.NotReady++
		}
		if s.state[i]&slotUrgent != 0 {
			due = 0 // overdue longer than any other
		}
		q.keepEntryOrLeaveInShard(overdueEntry{due: due, slot: int32(i), shard: uint8(shard)}) //nolint:gosec // both are small
	}
}

// keepEntryOrLeaveInShard adds an entry to the queue unless it has no chance to be within the limit.
func (q *overdueQueue) keepEntryOrLeaveInShard(entry overdueEntry) {
	if entry.due >= q.before || q.limit == 0 {
		q.leaveInShard(entry)
		return
	}
	q.found = append(q.found, entry)
	if len(q.found)/2 >= q.limit {
		q.sortAndTrimToLimit()
	}
}

// sortAndTrimToLimit sorts the queue and drops the entries above the limit.
func (q *overdueQueue) sortAndTrimToLimit() {
	slices.SortFunc(q.found, func(a, b overdueEntry) int { return cmp.Compare(a.due, b.due) })
	if len(q.found) <= q.limit {
		return
	}
	for _, entry := range q.found[q.limit:] {
		q.leaveInShard(entry)
	}
	q.found = q.found[:q.limit]
	q.before = q.found[q.limit-1].due
}

// leaveInShard makes the next scan of the shard find an entry again.
func (q *overdueQueue) leaveInShard(entry overdueEntry) {
	s := &q.shards[entry.shard]
	s.earliest = min(s.earliest, entry.due)
}
