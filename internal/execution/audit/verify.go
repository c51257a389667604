package audit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// A Position is a place in the chain. Its hash covers everything before it.
type Position struct {
	Position int64
	Hash     []byte
}

// String formats a position so that ParsePosition can read it.
func (p Position) String() string { return fmt.Sprintf("%d:%x", p.Position, p.Hash) }

// ParsePosition parses the output of Position.String.
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

// BreakKind is the kind of a break in the chain.
type BreakKind string

// The kinds.
const (
	Changed  BreakKind = "changed"
	Missing  BreakKind = "missing"
	Inserted BreakKind = "inserted"
)

// A Break is the first place where a chain is not intact.
type Break struct {
	Kind     BreakKind
	Position int64
	// ExecutionUID and Seq identify the event, if the break has one.
	ExecutionUID string
	Seq          int32
	Message      string
}

// A Report is the result of a verification.
type Report struct {
	Checked int64    // number of valid events
	Begin   Position // position before the first event
	End     Position // position of the last valid event
	Broken  *Break   // nil if the chain is intact
}

// A Verifier verifies a chain event by event, ordered by position, in bounded memory. The zero
// value is not usable: see NewVerifier.
type Verifier struct {
	report         Report
	last           *Event // last accepted event
	held           *Event // accepted once the following event is known
	beginConfirmed bool   // by a pruned event, unless the chain begins at its first event
	checkpoints    []Position
}

// NewVerifier returns a verifier that begins after a position. checkpoints are positions recorded
// elsewhere, which the chain must contain.
func NewVerifier(begin Position, checkpoints ...Position) *Verifier {
	v := &Verifier{
		report:         Report{Begin: begin, End: begin},
		beginConfirmed: begin.Position == 0,
		checkpoints:    checkpoints,
	}
	v.compareCheckpoints(begin)
	return v
}

// Add takes the next event and reports whether to continue.
func (v *Verifier) Add(e *Event) (proceed bool) {
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
	return v.verifyEvent(held, e.PrevHash)
}

// Close ends the chain and returns the report. end is the stored end of the chain.
func (v *Verifier) Close(end Position) Report {
	if v.report.Broken == nil && v.held != nil {
		follows := v.held.Hash
		if v.held.Position == end.Position {
			follows = end.Hash
		}
		v.verifyEvent(v.held, follows)
	}
	if v.report.Broken == nil {
		v.verifyEnd(end)
	}
	return v.report
}

func (v *Verifier) verifyEnd(end Position) {
	got := v.report.End
	switch {
	case got.Position < end.Position:
		v.reportMissing(got.Position+1,
			fmt.Sprintf("the chain ends at position %d, but events were recorded up to %d", got.Position, end.Position))
	case got.Position > end.Position:
		v.reportBreak(Inserted, v.last,
			fmt.Sprintf("the chain was recorded up to position %d, and this event comes after it", end.Position))
	case !bytes.Equal(got.Hash, end.Hash):
		v.reportBreak(Changed, v.last, "its hash differs from the recorded one")
	case !v.beginConfirmed:
		v.reportMissing(v.report.Begin.Position, "events up to this position are missing without a pruned event")
	}
	for _, p := range v.checkpoints {
		if v.report.Broken == nil && p.Position > got.Position {
			v.reportMissing(got.Position+1, fmt.Sprintf("the checkpoint has events up to position %d", p.Position))
		}
	}
}

// isNextEvent reports whether an event continues the chain.
func (v *Verifier) isNextEvent(e *Event) bool {
	follows := e.Position == v.report.End.Position+1 && bytes.Equal(e.PrevHash, v.report.End.Hash)
	return follows && bytes.Equal(e.Digest(), e.Hash)
}

// verifyEvent verifies an event. nextPrevHash is the previous hash stored in the event after it.
func (v *Verifier) verifyEvent(e *Event, nextPrevHash []byte) (intact bool) {
	want := v.report.End.Position + 1
	switch {
	case e.Position < want:
		return v.reportBreak(Inserted, e, fmt.Sprintf("the chain continues with position %d", want))
	case e.Position > want:
		return v.reportMissing(want, fmt.Sprintf("the next event has position %d", e.Position))
	case !bytes.Equal(e.Digest(), e.Hash):
		return v.reportBreak(Changed, e, "its hash does not match its content")
	case !bytes.Equal(e.PrevHash, v.report.End.Hash):
		// Both events are consistent. The hash stored in the following event shows
		// which of them was changed.
		if v.last == nil || !bytes.Equal(nextPrevHash, e.Hash) {
			return v.reportBreak(Changed, e, "it is linked neither to the previous nor to the next event")
		}
		return v.reportBreak(Changed, v.last, "its hash differs from the one stored in the next event")
	}
	v.last = e
	v.report.End = Position{Position: e.Position, Hash: e.Hash}
	v.report.Checked++
	v.confirmBeginIfPruned(e)
	return v.compareCheckpoints(v.report.End)
}

// confirmBeginIfPruned notes that a pruned event confirms the beginning of the chain.
func (v *Verifier) confirmBeginIfPruned(e *Event) {
	if e.Type != Pruned {
		return
	}
	var pruned struct {
		Through int64  `json:"through"`
		Hash    string `json:"hash"`
	}
	begin := v.report.Begin
	if err := json.Unmarshal(e.Payload, &pruned); err != nil {
		return
	}
	if pruned.Through == begin.Position && pruned.Hash == hex.EncodeToString(begin.Hash) {
		v.beginConfirmed = true
	}
}

func (v *Verifier) compareCheckpoints(at Position) (intact bool) {
	for _, p := range v.checkpoints {
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

func (v *Verifier) reportBreak(kind BreakKind, e *Event, message string) (intact bool) {
	b := Break{Kind: kind, Position: v.report.End.Position, Message: message}
	if e != nil {
		b.Position, b.ExecutionUID, b.Seq = e.Position, e.ExecutionUID, e.Seq
	}
	v.report.Broken = &b
	return false
}

func (v *Verifier) reportMissing(position int64, message string) (intact bool) {
	v.report.Broken = &Break{Kind: Missing, Position: position, Message: message}
	return false
}
