package watch

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/google/uuid"
)

// A Position is the place of a change in the feed. The zero value is before all changes. A position
// with the sequence 0 is before all changes of its transaction.
//
// Changes are ordered by the transaction that made them, and within it by a sequence. A running
// transaction already has its place, so a feed is read only up to the oldest running transaction.
// The changes before that are settled: no change can appear among them any more. (A sequence alone
// would not suffice: the transaction with the lower number may commit later, and a reader that has
// passed the higher one would never see it.)
type Position struct {
	Xact uint64 // the transaction id
	Seq  int64  // unique among all changes, ascending in a transaction
}

// Compare orders positions.
func (p Position) Compare(other Position) int {
	return cmp.Or(cmp.Compare(p.Xact, other.Xact), cmp.Compare(p.Seq, other.Seq))
}

// A Cursor is a place between two changes, by which clients follow the feed: the changes up to and
// including its position precede it. It is valid for every kind, tenant and selector.
type Cursor struct {
	// Epoch identifies the history in which the position is meaningful. A restored database begins a new epoch.
	Epoch uuid.UUID
	Position
}

// ErrMalformedCursor means that a text is no cursor.
var ErrMalformedCursor = errors.New("not a cursor of this API")

const (
	cursorVersion = 1
	cursorLen     = 1 + len(uuid.UUID{}) + 8 + 8
)

// String returns the cursor in the form that clients receive.
func (c Cursor) String() string { return base64.RawURLEncoding.EncodeToString(c.appendEncoded(nil)) }

func (c Cursor) appendEncoded(b []byte) []byte {
	b = append(b, cursorVersion)
	b = append(b, c.Epoch[:]...)
	b = binary.BigEndian.AppendUint64(b, c.Xact)
	return binary.BigEndian.AppendUint64(b, uint64(c.Seq)) //nolint:gosec // never negative
}

// ParseCursor parses the output of String.
func ParseCursor(text string) (Cursor, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != cursorLen || b[0] != cursorVersion || strings.ContainsAny(text, "\r\n") {
		return Cursor{}, ErrMalformedCursor
	}
	c := Cursor{Epoch: uuid.UUID(b[1:17]), Position: Position{Xact: binary.BigEndian.Uint64(b[17:])}}
	if c.Seq = int64(binary.BigEndian.Uint64(b[25:])); c.Seq < 0 { //nolint:gosec // looked at right here
		return Cursor{}, ErrMalformedCursor
	}
	return c, nil
}

// A FeedState is the state of a kind's changes in one snapshot of the database. Two snapshots with the
// same state contain the same resources: between them, only transactions that changed no resource
// of the kind can have committed. Changes after Newest are in neither snapshot. The reverse does
// not hold: the Pending include transactions that are unrelated to the kind.
type FeedState struct {
	Epoch uuid.UUID
	// Newest is the position of the last visible change.
	Newest Position
	// Pending lists the running transactions before Newest, in ascending order. Their changes are not visible yet.
	Pending []uint64
}

// CursorBeforePending returns the cursor up to which all changes of every kind are visible. It depends on the
// state alone, so a page that contains it stays the same while the state does.
func (s *FeedState) CursorBeforePending() Cursor {
	c := Cursor{Epoch: s.Epoch, Position: s.Newest}
	if len(s.Pending) > 0 {
		c.Position = Position{Xact: s.Pending[0]}
	}
	return c
}

// AppendEncoded appends an encoding of the state, which is unique to it.
func (s *FeedState) AppendEncoded(b []byte) []byte {
	b = Cursor{s.Epoch, s.Newest}.appendEncoded(b)
	for _, xact := range s.Pending {
		b = binary.BigEndian.AppendUint64(b, xact)
	}
	return b
}
