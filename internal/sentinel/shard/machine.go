package shard

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/kube/leases/member"
)

// timing is how long things take, all by one's own clock.
type timing struct {
	lease   time.Duration // a record that does not change for so long may be declared lost
	fence   time.Duration // a member whose last good write began so long ago owns nothing
	renew   time.Duration // between writes of an unchanged record
	retry   time.Duration // after a write that failed
	collect time.Duration // a record that is over is deleted after this
}

// watchTimeout is after how long without a word the watch is begun anew. One's own
// writes come back by it, so it is never silent when all is well.
func (t timing) watchTimeout() time.Duration { return 3 * t.renew }

const never = time.Duration(math.MaxInt64)

// A machine is the protocol of one member: what it has been told goes in,
// what it owns and what it is to do comes out. It has no clock, no network
// and no goroutines; times are since some moment of the member's own.
//
// Two members never own the same as long as each that owns counts the other
// in (see share). So a member
//
//   - owns nothing before it has made itself known by a write, has seen
//     everybody who was known by then, and each of those says in its record
//     that it counts this member's epoch in, or is over;
//   - counts everybody in of whom it is told, at once, waits for its attempts
//     for what is the other's then, and says so in its record;
//   - leaves a member out only when that one's epoch is over: it has left, or
//     was declared lost;
//   - owns nothing when its last good write began too long ago, until the
//     next one succeeds.
//
// To declare a member lost is to write into its record, which one did not see
// change for the time of a lease. The write is for the version that was seen:
// if it succeeds, the member has not written since, so its own time, which is
// shorter, has run out, and no write of its epoch will succeed any more. It
// has to begin another, and what others said of the one before does not count.
type machine struct {
	timing
	name, identity string

	// The own record. A member that was declared lost begins another epoch.
	epoch     uint64
	version   uint64        // as last known; 0 if there is none
	object    string        // likewise
	confirmed bool          // a write of this epoch was
	born      uint64        // the version of the first that was
	renewed   time.Duration // when the last one began that was
	written   member.Record // what it said
	attempted bool          // to write, whatever came of it
	cause     error         // why the last write failed

	// What is known of the others.
	horizon uint64        // everything up to this version
	heard   time.Duration // when anything was told
	peers   map[string]*peer

	joined  bool              // everybody is known who was there before us
	waiting map[string]uint64 // those of them that have not counted us in
	guard   map[string]uint64 // who is counted in, with the epoch
	active  bool              // we own what guard leaves
	changes uint64            // of guard and active
	settled uint64            // the change for which no attempt is in the way
	said    map[string]uint64 // guard at that change
	grace   time.Duration     // nobody is lost before a lease after this

	leaving, left, finished bool
	leftAt                  time.Duration

	busy      [numOps]bool
	retryAt   time.Duration // when the own record may be written again
	unsure    bool          // a write conflicted, and the watch has not told with what
	rewatched time.Duration // when the watch was last begun anew
}

// A peer is what is known of another member.
type peer struct {
	record  member.Record
	changed time.Duration // when it was told of
	gone    bool
	retryAt time.Duration // when its record may be written again
}

// newMachine makes a member that nobody knows.
func newMachine(t timing, name, identity string) *machine {
	return &machine{timing: t, name: name, identity: identity, epoch: 1, peers: map[string]*peer{}}
}

// hasEnded reports whether p's epoch has ended, for good. A record that was
// deleted without a word may have had an owner; nothing can be written into it
// any more, so that one's time runs out.
func (m *machine) hasEnded(p *peer, now time.Duration) bool {
	return p.record.State.Over() || p.gone && now >= p.changed+m.lease
}

// beginEpoch ends the epoch: what others know of us does not count any more.
func (m *machine) beginEpoch() {
	m.epoch++
	m.confirmed, m.joined, m.born, m.waiting = false, false, 0, nil
}

// advanceTo draws the conclusions at now of what was told before.
func (m *machine) advanceTo(now time.Duration) {
	guard := map[string]uint64{}
	for name, p := range m.peers {
		switch {
		case !m.hasEnded(p, now):
			guard[name] = p.record.Epoch
		case p.gone:
			delete(m.peers, name)
		}
	}
	if m.confirmed && !m.joined && m.horizon >= m.born {
		m.joined, m.waiting = true, maps.Clone(guard)
	}
	maps.DeleteFunc(m.waiting, func(name string, _ uint64) bool {
		_, there := guard[name]
		return !there || m.peers[name].record.Includes[m.name] == m.epoch
	})
	active := m.allAgree() && !m.leaving && now < m.holdingExpiry()
	if active != m.active || !maps.Equal(guard, m.guard) {
		m.changes++
	}
	m.active, m.guard = active, guard
}

// allAgree reports whether everybody counts us in who has to.
func (m *machine) allAgree() bool { return m.joined && len(m.waiting) == 0 }

// currentHolding is what the member owns.
func (m *machine) currentHolding() holding {
	if !m.active {
		return holding{}
	}
	return holding{share: newShare(m.name, slices.Collect(maps.Keys(m.guard))), until: m.holdingExpiry()}
}

// holdingExpiry is when the member's time runs out, unless it writes before.
func (m *machine) holdingExpiry() time.Duration { return m.renewed + m.fence }

// noteDrained tells that no attempt is under way for anything that the present
// holding does not hold.
func (m *machine) noteDrained() { m.settled, m.said = m.changes, m.guard }

// releaseAll makes the member let go of everything.
func (m *machine) releaseAll() { m.leaving = true }

// desiredRecord is what the own record should say.
func (m *machine) desiredRecord() member.Record {
	r := member.Record{
		Name: m.name, Identity: m.identity, Epoch: m.epoch, State: member.Joining,
		Includes: map[string]uint64{}, Duration: m.lease, Version: m.version, Object: m.object,
	}
	for name, epoch := range m.said {
		if _, ok := m.guard[name]; ok {
			r.Includes[name] = epoch
		}
	}
	switch {
	case m.leaving && m.settled == m.changes:
		r.State = member.Left
	case m.leaving && m.confirmed:
		r.State = m.written.State
	case m.allAgree():
		r.State = member.Active
	}
	return r
}

// statusError says why the member owns nothing at now, or nil.
func (m *machine) statusError(now time.Duration) error {
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
