// Package feed says where a change stands among all changes, and makes the
// cursors by which clients follow them.
//
// Changes are ordered by the transaction that made them, and within it by a
// sequence. A transaction that is still running has its place already, so a
// feed is read only up to the oldest of those: what is before that is settled, and
// no change can turn up there any more. (A sequence alone would not do: who
// takes the lower number may commit later, and a reader who has passed the higher one
// would never see it.)
package feed

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/google/uuid"
)

// A Position is where a change stands. The zero value is before all changes,
// and one with the sequence 0 before all changes of its transaction.
type Position struct {
	Xact uint64 // the transaction
	Seq  int64  // within all changes, ascending in a transaction
}

// Compare orders positions.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Xact, q.Xact), cmp.Compare(p.Seq, q.Seq))
}

// A Cursor is a place between two changes: all up to and including its
// position are behind it. It is good for every kind, tenant and selector.
type Cursor struct {
	// Epoch is the life of the feed in which the position means something. A
	// restored database begins another one.
	Epoch uuid.UUID
	Position
}

// ErrMalformed means that a text is no cursor.
var ErrMalformed = errors.New("not a cursor of this API")

const (
	version   = 1
	cursorLen = 1 + len(uuid.UUID{}) + 8 + 8
)

// String is the cursor as clients have it.
func (c Cursor) String() string { return base64.RawURLEncoding.EncodeToString(c.appendTo(nil)) }

func (c Cursor) appendTo(b []byte) []byte {
	b = append(b, version)
	b = append(b, c.Epoch[:]...)
	b = binary.BigEndian.AppendUint64(b, c.Xact)
	return binary.BigEndian.AppendUint64(b, uint64(c.Seq)) //nolint:gosec // never negative
}

// Parse reads what String gave.
func Parse(s string) (Cursor, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != cursorLen || b[0] != version || strings.ContainsAny(s, "\r\n") {
		return Cursor{}, ErrMalformed
	}
	c := Cursor{Epoch: uuid.UUID(b[1:17]), Position: Position{Xact: binary.BigEndian.Uint64(b[17:])}}
	if c.Seq = int64(binary.BigEndian.Uint64(b[25:])); c.Seq < 0 { //nolint:gosec // looked at right here
		return Cursor{}, ErrMalformed
	}
	return c, nil
}

// A State is what one look at the database sees of the changes of a kind. Two
// looks with the same state see the same resources: between them, nothing can
// have been committed but transactions that changed no resource of the kind,
// those that stand behind Newest being no part of either. The other way round it
// does not hold: transactions that have nothing to do with the kind are among the Pending.
type State struct {
	Epoch uuid.UUID
	// Newest is the last change that is visible.
	Newest Position
	// Pending are the transactions before Newest that are still running, in
	// ascending order. What they change is not visible yet.
	Pending []uint64
}

// Cursor is the place up to which all changes of whatever kind are visible. It
// follows from the state alone, so that a page that bears it is the same
// while the state is.
func (s *State) Cursor() Cursor {
	c := Cursor{Epoch: s.Epoch, Position: s.Newest}
	if len(s.Pending) > 0 {
		c.Position = Position{Xact: s.Pending[0]}
	}
	return c
}

// Append appends the state, one form for each.
func (s *State) Append(b []byte) []byte {
	b = Cursor{s.Epoch, s.Newest}.appendTo(b)
	for _, xact := range s.Pending {
		b = binary.BigEndian.AppendUint64(b, xact)
	}
	return b
}
