package shard

import (
	"maps"
	"slices"
	"time"
)

// An op is the operation of a command. At most one command of each op is in progress.
type op int

const (
	opWrite   op = iota // write the member's own record
	opBury              // declare another member lost
	opRemove            // delete a record that is no longer needed
	opRewatch           // restart the watch; it has no result
	numOps
)

func (o op) String() string {
	return [numOps]string{"write", "declare lost", "remove", "restart watch"}[o]
}

// A command is an action that the member must take.
type command struct {
	op      op
	record  Record
	started time.Duration
}

// takeDueCommands returns the commands that are due at now, and when to ask again if nothing happens
// earlier.
func (m *membership) takeDueCommands(now time.Duration) (commands []command, wake time.Duration) {
	wake = never
	// plan takes a command that is due, or notes when it will be.
	plan := func(due time.Duration, c command) {
		switch {
		case m.busy[c.op]: // its result will come first
		case now < due:
			wake = min(wake, due)
		default:
			c.started = now
			m.busy[c.op] = c.op != opRewatch
			commands = append(commands, c)
			m.recordCommandStarted(now, c)
		}
	}
	if m.active {
		wake = min(wake, m.holdingExpiry())
	}
	m.planOwnRecordWriteOrRemoval(now, plan)
	for _, name := range slices.Sorted(maps.Keys(m.peers)) {
		p := m.peers[name]
		switch {
		case p.gone:
			wake = min(wake, p.changed+m.lease)
		case p.record.State.Over():
			plan(max(p.changed+m.collect, p.retryAt), command{op: opRemove, record: p.record})
		case m.confirmed && now < m.holdingExpiry(): // otherwise this member may be the one that is cut off
			lost := p.record
			lost.State, lost.Includes = Lost, nil
			silentUntil := max(p.changed, m.grace) + m.lease
			plan(max(silentUntil, p.retryAt), command{op: opBury, record: lost})
		}
	}
	rewatchAt := m.heard + m.watchTimeout()
	if m.unsure {
		rewatchAt = min(rewatchAt, m.retryAt)
	}
	plan(max(rewatchAt, m.rewatched+m.watchTimeout()), command{op: opRewatch})
	return commands, wake
}

// planOwnRecordWriteOrRemoval plans the next command for the member's own record.
func (m *membership) planOwnRecordWriteOrRemoval(now time.Duration, planAt func(time.Duration, command)) {
	switch {
	case m.left:
		due := m.leftAt + m.renew
		if !m.isStillCounted(now) {
			due = now
		}
		own := Record{Name: m.name, Version: m.version, Object: m.object}
		planAt(max(due, m.retryAt), command{op: opRemove, record: own})
		return
	case m.leaving && m.version == 0 && !m.attempted:
		m.finished = true
		return
	}
	record := m.buildDesiredRecord()
	isUnchanged := record.State == m.written.State && maps.Equal(record.Includes, m.written.Includes)
	due := now
	if m.confirmed && isUnchanged {
		due = m.renewed + m.renew
	}
	planAt(max(due, m.retryAt), command{op: opWrite, record: record})
}

// isStillCounted reports whether any peer still counts this member in.
func (m *membership) isStillCounted(now time.Duration) bool {
	for _, p := range m.peers {
		if p.stillCountsMember(m.name, m.lease, now) {
			return true
		}
	}
	return false
}

// stillCountsMember reports whether the peer lives and still counts a member in, because it has not
// seen that the member left. If the member's record were deleted now, the peer would expect it to
// come back.
func (p *peer) stillCountsMember(member string, lease, now time.Duration) bool {
	_, ok := p.record.Includes[member]
	return ok && !p.hasEnded(lease, now)
}

func (m *membership) recordCommandStarted(now time.Duration, c command) {
	switch c.op {
	case opWrite:
		m.attempted = true
	case opRewatch:
		m.rewatched = now
	case opBury, opRemove, numOps:
	}
}
