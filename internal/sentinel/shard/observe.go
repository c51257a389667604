package shard

import (
	"errors"
	"slices"
	"time"
)

// observeLeaseChange processes a change that the watch delivered at now.
func (m *membership) observeLeaseChange(now time.Duration, c LeaseChange) {
	m.heard = now
	if c.All && c.Version < m.horizon {
		// The store has lost records that it delivered earlier: it was restored from a backup. It
		// contains none of the later commitments.
		m.beginNextEpoch()
		m.peers, m.version, m.object = map[string]*peer{}, 0, ""
	}
	m.horizon = c.Version
	for _, r := range c.Records {
		if r.Name == m.name {
			m.observeOwnRecord(now, r)
		} else {
			m.observePeerRecord(now, r)
		}
	}
	for _, name := range c.Gone {
		m.observeDeletion(now, name, c.Version)
	}
	if c.All {
		m.markUnlistedAsDeleted(now, c)
	}
}

// markUnlistedAsDeleted finds records that were deleted while the watch was down.
func (m *membership) markUnlistedAsDeleted(now time.Duration, c LeaseChange) {
	isListed := func(name string) bool {
		return slices.ContainsFunc(c.Records, func(r Record) bool { return r.Name == name })
	}
	for name := range m.peers {
		if !isListed(name) {
			m.observeDeletion(now, name, c.Version)
		}
	}
	if !isListed(m.name) {
		m.observeDeletion(now, m.name, c.Version)
	}
}

// observeOwnRecord updates the version of the member's own record, also after a write without a
// response, and detects that another member declared this one lost.
func (m *membership) observeOwnRecord(now time.Duration, r Record) {
	if r.Version <= m.version {
		return
	}
	m.version, m.object = r.Version, r.Object
	if m.unsure {
		m.unsure, m.retryAt = false, now
	}
	switch {
	case r.State == Left:
		m.markLeft(now)
	case r.State == Lost && r.Epoch >= m.epoch:
		m.epoch = r.Epoch
		m.beginNextEpoch()
	}
}

func (m *membership) observePeerRecord(now time.Duration, r Record) {
	p := m.peers[r.Name]
	if p != nil && r.Version <= p.record.Version {
		return
	}
	m.peers[r.Name] = &peer{record: r, changed: now}
}

func (m *membership) observeDeletion(now time.Duration, name string, version uint64) {
	if name == m.name {
		if m.version > 0 && m.version <= version {
			m.beginEpochAfterDeletion()
		}
		return
	}
	p := m.peers[name]
	if p == nil || p.gone || version < p.record.Version {
		return
	}
	p.record.Version, p.gone, p.changed = version, true, now
}

// beginEpochAfterDeletion records that the member's own record was deleted.
func (m *membership) beginEpochAfterDeletion() {
	m.version, m.object, m.unsure = 0, "", false
	m.beginNextEpoch()
}

func (m *membership) markLeft(now time.Duration) {
	if m.leaving && !m.left {
		m.left, m.leftAt = true, now
	}
}

// processCommandResult processes the result of c at now: the written record, or an error.
func (m *membership) processCommandResult(now time.Duration, c command, written Record, err error) {
	m.busy[c.op] = false
	retryAt := time.Duration(0)
	if err != nil {
		retryAt = now + m.retry
	}
	name := c.record.Name
	if name == m.name {
		m.retryAt = retryAt
	} else if p := m.peers[name]; p != nil {
		p.retryAt = retryAt
	}

	isGone := errors.Is(err, ErrGone)
	switch {
	case c.op == opWrite:
		m.processWriteResult(now, c, written, err)
	case name == m.name: // its own record was removed, which is the last command
		m.finished = err == nil || isGone || errors.Is(err, ErrConflict)
	case isGone, err == nil && c.op == opRemove:
		m.observeDeletion(now, name, c.record.Version)
	case err == nil:
		m.observePeerRecord(now, written)
	}
}

// processWriteResult processes the result of writing the member's own record.
func (m *membership) processWriteResult(now time.Duration, c command, written Record, err error) {
	m.cause = err
	switch {
	case errors.Is(err, ErrGone):
		m.beginEpochAfterDeletion()
		return
	case errors.Is(err, ErrConflict):
		// Without a newer version a repetition would conflict, too.
		m.unsure = m.version == c.record.Version
		if !m.unsure {
			m.retryAt = now
		}
		return
	case err != nil:
		return
	}
	if written.Version > m.version {
		m.version, m.object = written.Version, written.Object
	}
	if c.record.State == Left {
		m.markLeft(now)
		return
	}
	if c.record.Epoch != m.epoch {
		return // another epoch began meanwhile
	}
	switch {
	case !m.confirmed:
		m.confirmed, m.born = true, written.Version
	case now >= m.holdingExpiry():
		// This member was cut off, or the API was down for all. The others may need slightly longer
		// for their writes than this one.
		m.grace = now
	}
	m.renewed, m.written = c.started, c.record
}
