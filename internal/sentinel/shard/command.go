package shard

import (
	"maps"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/internal/kube/leases/member"
)

// An op is what a command does. One command of each op is under way at most.
type op int

const (
	opWrite   op = iota // write the own record
	opBury              // declare another member lost
	opRemove            // delete a record that is over
	opRewatch           // begin the watch anew; nothing comes of it
	numOps
)

func (o op) String() string {
	return [numOps]string{"write", "declare lost", "remove", "restart watch"}[o]
}

// A command is something that the member is to do.
type command struct {
	op      op
	record  member.Record
	started time.Duration
}

// nextCommands are what is to be done at now, and when to ask again if nothing is
// told before.
func (m *machine) nextCommands(now time.Duration) (todo []command, wake time.Duration) {
	wake = never
	// at notes when c is due.
	at := func(due time.Duration, c command) {
		switch {
		case m.busy[c.op]:
		case now < due:
			wake = min(wake, due)
		default:
			c.started = now
			m.busy[c.op] = c.op != opRewatch
			todo = append(todo, c)
			m.noteStarted(now, c)
		}
	}
	if m.active {
		wake = min(wake, m.holdingExpiry())
	}
	m.planOwnRecord(now, at)
	for _, name := range slices.Sorted(maps.Keys(m.peers)) {
		p := m.peers[name]
		switch {
		case p.gone:
			wake = min(wake, p.changed+m.lease)
		case p.record.State.Over():
			at(max(p.changed+m.collect, p.retryAt), command{op: opRemove, record: p.record})
		case m.confirmed && now < m.holdingExpiry(): // or it may be us who are cut off
			lost := p.record
			lost.State, lost.Includes = member.Lost, nil
			at(max(max(p.changed, m.grace)+m.lease, p.retryAt), command{op: opBury, record: lost})
		}
	}
	again := m.heard + m.watchTimeout()
	if m.unsure {
		again = min(again, m.retryAt)
	}
	at(max(again, m.rewatched+m.watchTimeout()), command{op: opRewatch})
	return todo, wake
}

// planOwnRecord says what is to be done with the own record.
func (m *machine) planOwnRecord(now time.Duration, at func(time.Duration, command)) {
	switch {
	case m.left:
		due := m.leftAt + m.renew
		if !m.isCountedIn(now) {
			due = now
		}
		at(max(due, m.retryAt), command{op: opRemove, record: member.Record{Name: m.name, Version: m.version, Object: m.object}})
		return
	case m.leaving && m.version == 0 && !m.attempted:
		m.finished = true
		return
	}
	due, record := now, m.desiredRecord()
	if m.confirmed && record.State == m.written.State && maps.Equal(record.Includes, m.written.Includes) {
		due = m.renewed + m.renew
	}
	at(max(due, m.retryAt), command{op: opWrite, record: record})
}

// isCountedIn reports whether a living member still counts us in: one that has
// not seen that we left. It would take us for one that may come back if our
// record were deleted now.
func (m *machine) isCountedIn(now time.Duration) bool {
	for _, p := range m.peers {
		if _, ok := p.record.Includes[m.name]; ok && !m.hasEnded(p, now) {
			return true
		}
	}
	return false
}

func (m *machine) noteStarted(now time.Duration, c command) {
	switch c.op {
	case opWrite:
		m.attempted = true
	case opRewatch:
		m.rewatched = now
	case opBury, opRemove, numOps:
	}
}
