package shard

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// timing holds the durations of the protocol, all by the member's own clock.
type timing struct {
	lease   time.Duration // a record that does not change for this long may be declared lost
	fence   time.Duration // a member owns nothing this long after the start of its last successful write
	renew   time.Duration // interval between writes of an unchanged record
	retry   time.Duration // delay after a failed write
	collect time.Duration // a record that has ended is deleted after this
}

// watchTimeout returns how long the watch may be silent before it is restarted. It delivers the
// member's own writes, so a working watch is never silent.
func (t timing) watchTimeout() time.Duration { return 3 * t.renew }

const never = time.Duration(math.MaxInt64)

// A membership is the protocol of one member: its input is what the member
// observes, its output is what the member owns and must do. It has no clock, no
// network and no goroutines; times count from some moment of the member's own.
//
// Two members never own the same resource as long as each owner counts the
// other in (see share). So a member
//
//   - owns nothing before it has made itself known by a write, has seen all
//     members known by then, and each of those states in its record that it
//     counts this member's epoch in, or has ended;
//   - counts in every member that it observes, at once, waits for its attempts
//     in the share of that member, and then states this in its record;
//   - leaves a member out only when the epoch of that member has ended: it has
//     left, or was declared lost;
//   - owns nothing if its last successful write started too long ago, until
//     the next one succeeds.
//
// A member is declared lost by a write into its record, if the record has not
// changed for the duration of a lease. The write replaces the observed version:
// if it succeeds, the member has not written since, so its own time, which is
// shorter, has expired, and no write of its epoch will succeed any more. It
// must begin another epoch, and statements about the earlier one do not count.
type membership struct {
	timing
	name, identity string

	// The member's own record. A member that was declared lost begins another epoch.
	epoch     uint64
	version   uint64        // last known version; 0 if there is none
	object    string        // last known object
	confirmed bool          // a write of this epoch succeeded
	born      uint64        // version of the first successful write
	renewed   time.Duration // when the last successful write began
	written   Record        // content of the last successful write
	attempted bool          // a write was attempted, whatever its result
	cause     error         // error of the last write

	// The state of the other members.
	horizon uint64        // all changes up to this version are known
	heard   time.Duration // time of the last event of the watch
	peers   map[string]*peer

	joined  bool              // all earlier members are known
	waiting map[string]uint64 // earlier members that have not counted this one in
	guard   map[string]uint64 // members that are counted in, with their epochs
	active  bool              // this member owns the share that guard leaves
	changes uint64            // number of changes of guard and active
	settled uint64            // last change that no attempt blocks
	said    map[string]uint64 // guard at that change
	grace   time.Duration     // until a lease after this time no member is declared lost

	leaving, left, finished bool
	leftAt                  time.Duration

	busy      [numOps]bool
	retryAt   time.Duration // when the member's own record may be written again
	unsure    bool          // a write conflicted, and the watch has not delivered the conflicting record
	rewatched time.Duration // when the watch was last restarted
}

// A peer is the known state of another member.
type peer struct {
	record  Record
	changed time.Duration // when its last change was observed
	gone    bool
	retryAt time.Duration // when its record may be written again
}

// newMembership returns a member that is not known to others yet.
func newMembership(t timing, name, identity string) *membership {
	return &membership{timing: t, name: name, identity: identity, epoch: 1, peers: map[string]*peer{}}
}

// hasEnded reports whether p's epoch has ended, for good. A record that was deleted without leaving
// may have had an owner. No write to it can succeed any more, so the time of that owner expires.
func (p *peer) hasEnded(lease, now time.Duration) bool {
	return p.record.State.Over() || p.gone && now >= p.changed+lease
}

// beginNextEpoch ends the epoch: what others know about this member no longer counts.
func (m *membership) beginNextEpoch() {
	m.epoch++
	m.confirmed, m.born = false, 0
	m.joined, m.waiting = false, nil
}

// updateOwnership updates the conclusions from earlier observations to the time now.
func (m *membership) updateOwnership(now time.Duration) {
	// Count in every member whose epoch has not ended.
	guard := map[string]uint64{}
	for name, p := range m.peers {
		switch {
		case !p.hasEnded(m.lease, now):
			guard[name] = p.record.Epoch
		case p.gone:
			delete(m.peers, name)
		}
	}

	// Wait for the members that were known when this one made itself known.
	if m.confirmed && !m.joined && m.horizon >= m.born {
		m.joined, m.waiting = true, maps.Clone(guard)
	}
	maps.DeleteFunc(m.waiting, func(name string, _ uint64) bool {
		_, isGuarded := guard[name]
		countsThisEpoch := isGuarded && m.peers[name].record.Includes[m.name] == m.epoch
		return !isGuarded || countsThisEpoch
	})

	active := m.isCountedByAll() && !m.leaving && now < m.holdingExpiry()
	if active != m.active || !maps.Equal(guard, m.guard) {
		m.changes++
	}
	m.active, m.guard = active, guard
}

// isCountedByAll reports whether all required members count this one in.
func (m *membership) isCountedByAll() bool { return m.joined && len(m.waiting) == 0 }

// currentHolding returns the member's share.
func (m *membership) currentHolding() holding {
	if !m.active {
		return holding{}
	}
	others := slices.Collect(maps.Keys(m.guard))
	return holding{share: newRendezvousShare(m.name, others), until: m.holdingExpiry()}
}

// holdingExpiry returns when the member's time expires, unless it writes earlier.
func (m *membership) holdingExpiry() time.Duration { return m.renewed + m.fence }

// recordDrained records that no attempt is in progress for a resource outside the current share.
func (m *membership) recordDrained() { m.settled, m.said = m.changes, m.guard }

// buildDesiredRecord returns the desired content of the member's own record.
func (m *membership) buildDesiredRecord() Record {
	r := Record{
		Name:     m.name,
		Identity: m.identity,
		Epoch:    m.epoch,
		State:    Joining,
		Includes: map[string]uint64{},
		Duration: m.lease,
		Version:  m.version,
		Object:   m.object,
	}
	for name, epoch := range m.said {
		if _, ok := m.guard[name]; ok {
			r.Includes[name] = epoch
		}
	}
	switch {
	case m.leaving && m.settled == m.changes:
		r.State = Left
	case m.leaving && m.confirmed:
		r.State = m.written.State
	case m.isCountedByAll():
		r.State = Active
	}
	return r
}

// statusError returns why the member owns nothing at now, or nil.
func (m *membership) statusError(now time.Duration) error {
	switch {
	case m.active:
		return nil
	case m.leaving:
		return errors.New("the replica is shutting down")
	case m.cause != nil:
		return fmt.Errorf("write lease %q: %w", m.name, m.cause)
	case !m.confirmed || now >= m.holdingExpiry():
		return fmt.Errorf("lease %q was not renewed in time", m.name)
	case !m.joined:
		return errors.New("the other replicas are not known yet")
	}
	names := slices.Sorted(maps.Keys(m.waiting))
	return fmt.Errorf("waiting for %s to release resources or to expire", strings.Join(names, ", "))
}
