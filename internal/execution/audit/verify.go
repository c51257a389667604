package audit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// A Position is a place in the chain. Its hash vouches for all that is before it.
type Position struct {
	Position int64
	Hash     []byte
}

// String is the position as a person can note it down: ParsePosition reads it.
func (p Position) String() string { return fmt.Sprintf("%d:%x", p.Position, p.Hash) }

// ParsePosition reads what Position.String wrote.
func ParsePosition(text string) (Position, error) {
	var p Position
	var sum string
	if n, err := fmt.Sscanf(text, "%d:%s", &p.Position, &sum); n != 2 || err != nil || p.Position < 0 {
		return Position{}, fmt.Errorf("parse checkpoint %q: want POSITION:HASH", text)
	}
	hash, err := hex.DecodeString(sum)
	if err != nil || len(hash) != 32 {
		return Position{}, fmt.Errorf("parse checkpoint %q: the hash must have 64 hexadecimal digits", text)
	}
	p.Hash = hash
	return p, nil
}

// BreakKind is how a chain is broken.
type BreakKind string

// The kinds.
const (
	Changed  BreakKind = "changed"
	Missing  BreakKind = "missing"
	Inserted BreakKind = "inserted"
)

// A Break is the first place where a chain does not hold.
type Break struct {
	Kind     BreakKind
	Position int64
	// The event, where there is one.
	ExecutionUID string
	Seq          int32
	Message      string
}

// A Report is what a verification found.
type Report struct {
	Checked int64    // how many events hold
	Begin   Position // what the first of them follows
	End     Position // the last of them
	Broken  *Break   // nil if all is as it was recorded
}

// A Verifier follows a chain, event by event in the order of positions and in
// bounded memory. Its zero value is of no use: see NewVerifier.
type Verifier struct {
	report  Report
	last    *Event // the last that was taken
	held    *Event // taken when it is clear what follows it
	vouched bool
	noted   []Position
}

// NewVerifier begins behind a position. Noted are positions that somebody has
// noted down: the chain must have them.
func NewVerifier(begin Position, noted ...Position) *Verifier {
	v := &Verifier{report: Report{Begin: begin, End: begin}, vouched: begin.Position == 0, noted: noted}
	v.compareNoted(begin)
	return v
}

// Next takes the next event, and says whether to go on.
func (v *Verifier) Next(e *Event) bool {
	if v.report.Broken != nil {
		return false
	}
	held := v.held
	v.held = e
	switch {
	case held == nil:
		return true
	case held.Position == e.Position && v.isNextEvent(held):
		return v.reportBreak(Inserted, e, "another valid event has its position")
	case held.Position == e.Position && v.isNextEvent(e):
		return v.reportBreak(Inserted, held, "another valid event has its position")
	}
	return v.acceptEvent(held, e.PrevHash)
}

// Close ends the chain, which should end where the database says that it does.
func (v *Verifier) Close(end Position) Report {
	if v.report.Broken == nil && v.held != nil {
		follows := v.held.Hash
		if v.held.Position == end.Position {
			follows = end.Hash
		}
		v.acceptEvent(v.held, follows)
	}
	if v.report.Broken == nil {
		v.closeAt(end)
	}
	return v.report
}

func (v *Verifier) closeAt(end Position) {
	got := v.report.End
	switch {
	case got.Position < end.Position:
		v.reportMissing(got.Position+1, fmt.Sprintf("the chain ends at position %d, but events were recorded up to %d", got.Position, end.Position))
	case got.Position > end.Position:
		v.reportBreak(Inserted, v.last, fmt.Sprintf("the chain was recorded up to position %d, and this event comes after it", end.Position))
	case !bytes.Equal(got.Hash, end.Hash):
		v.reportBreak(Changed, v.last, "its hash differs from the recorded one")
	case !v.vouched:
		v.reportMissing(v.report.Begin.Position, "events up to this position are missing without a pruned event")
	}
	for _, p := range v.noted {
		if v.report.Broken == nil && p.Position > got.Position {
			v.reportMissing(got.Position+1, fmt.Sprintf("the checkpoint has events up to position %d", p.Position))
		}
	}
}

// isNextEvent says whether an event is what follows.
func (v *Verifier) isNextEvent(e *Event) bool {
	return e.Position == v.report.End.Position+1 && bytes.Equal(e.PrevHash, v.report.End.Hash) && bytes.Equal(e.Digest(), e.Hash)
}

// acceptEvent takes an event, of which follows is the hash that what is behind it has.
func (v *Verifier) acceptEvent(e *Event, follows []byte) bool {
	want := v.report.End.Position + 1
	whole := bytes.Equal(e.Digest(), e.Hash)
	switch {
	case e.Position < want:
		return v.reportBreak(Inserted, e, fmt.Sprintf("the chain continues with position %d", want))
	case e.Position > want:
		return v.reportMissing(want, fmt.Sprintf("the next event has position %d", e.Position))
	case !whole:
		return v.reportBreak(Changed, e, "its hash does not match its content")
	case !bytes.Equal(e.PrevHash, v.report.End.Hash):
		// Both hold in themselves, and what follows knows which of them has become
		// another.
		if v.last == nil || !bytes.Equal(follows, e.Hash) {
			return v.reportBreak(Changed, e, "it is linked neither to the previous nor to the next event")
		}
		return v.reportBreak(Changed, v.last, "its hash differs from the one stored in the next event")
	}
	v.last = e
	v.report.End = Position{Position: e.Position, Hash: e.Hash}
	v.report.Checked++
	v.confirmBegin(e)
	return v.compareNoted(v.report.End)
}

// confirmBegin notes that an event says of the chain's beginning what it is.
func (v *Verifier) confirmBegin(e *Event) {
	if e.Type != Pruned {
		return
	}
	var p struct {
		Through int64  `json:"through"`
		Hash    string `json:"hash"`
	}
	if json.Unmarshal(e.Payload, &p) == nil && p.Through == v.report.Begin.Position && p.Hash == hex.EncodeToString(v.report.Begin.Hash) {
		v.vouched = true
	}
}

func (v *Verifier) compareNoted(at Position) bool {
	for _, p := range v.noted {
		if p.Position != at.Position || bytes.Equal(p.Hash, at.Hash) {
			continue
		}
		b := Break{Kind: Changed, Position: at.Position, Message: "the checkpoint has another hash: this or an earlier event was changed"}
		if v.last != nil {
			b.ExecutionUID, b.Seq = v.last.ExecutionUID, v.last.Seq
		}
		v.report.Broken = &b
		return false
	}
	return true
}

func (v *Verifier) reportBreak(kind BreakKind, e *Event, message string) bool {
	b := Break{Kind: kind, Position: v.report.End.Position, Message: message}
	if e != nil {
		b.Position, b.ExecutionUID, b.Seq = e.Position, e.ExecutionUID, e.Seq
	}
	v.report.Broken = &b
	return false
}

func (v *Verifier) reportMissing(position int64, message string) bool {
	v.report.Broken = &Break{Kind: Missing, Position: position, Message: message}
	return false
}
