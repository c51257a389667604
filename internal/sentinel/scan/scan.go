// Package scan reads list pages of the fleet API, item by item, into one
// reused struct.
//
// Only the fields that decide are decoded; everything else is skipped without
// being looked at, and nothing is allocated per item. A visitor sees each item
// together with its raw bytes, so that the few which will be published can be
// read in full.
//
// An item that can not be read is handed to the visitor with its Fault and
// never spoils the page. Only a page that is not JSON, or not a list, is an
// error.
package scan

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

// An Envelope is what a page says beside its items.
type Envelope struct {
	// Items is how many items stood on the page, broken ones included.
	Items int

	// Continue is where the next page begins; empty if the server named none.
	Continue string

	// Total is how many items the server counts on all pages, -1 if it does
	// not say.
	Total int64

	// Bare is true for a page that is an array without an envelope.
	Bare bool

	// First and Last are the ids of the first item and of the last that has
	// one. They are parts of the page, or valid until the next scan.
	First, Last []byte

	// Sorted is true if the ids ascend, byte by byte and without a repeat.
	Sorted bool

	// Cursor is where the changes begin that the page does not show yet; empty
	// if the server named none.
	Cursor string

	// More says that there are more changes than those on the page.
	More bool

	// Removed are the ids of what is gone, of a page of changes. They are parts
	// of the page, and the slice is valid until the next scan.
	Removed [][]byte
}

// An Item is one resource on a page. It and all that it refers to are valid
// only until the visitor returns.
type Item struct {
	ID       []byte
	Resource decision.Resource

	// Labels are those of the resource, if the scanner was asked for them.
	// HasLabels says that it has the field, be it empty or null.
	Labels    Labels
	HasLabels bool

	// Public says that the resource has the form of the public API's, which always
	// have href and created_by.
	Public bool

	// Fault is what is wrong with the item, at Field. If Fault.Skips, nothing
	// else of the item is to be believed, though ID is set if there was one.
	Fault Fault
	Field string
}

// A Fault is what is wrong with an item. The set is closed, so that it may be
// the label of a metric.
type Fault uint8

// The faults.
const (
	FaultNone      Fault = iota
	FaultNotObject       // not a JSON object
	FaultNoID            // no id, or an empty one
	FaultWrongType       // a field that decides is of another type
	FaultTime            // a time that can not be read; it counts as absent
	FaultStatus          // no phase, and conditions of which none is known; it is not ready

	// NumFaults is how many there are, FaultNone included.
	NumFaults
)

// String is the fault as logs and metrics show it.
func (f Fault) String() string {
	switch f {
	case FaultNone:
		return "none"
	case FaultNotObject:
		return "not_an_object"
	case FaultNoID:
		return "missing_id"
	case FaultWrongType:
		return "wrong_type"
	case FaultTime:
		return "invalid_time"
	case FaultStatus:
		return "unknown_status"
	case NumFaults:
	}
	return "unknown"
}

// Skips reports whether an item with this fault can not be judged.
func (f Fault) Skips() bool { return f != FaultNone && f != FaultTime && f != FaultStatus }

// A Scanner reads pages. It is not safe for concurrent use; its memory is
// reused from page to page.
type Scanner struct {
	dec        *jsontext.Decoder
	buf        bytes.Buffer
	page       []byte
	wantLabels bool

	item  Item
	into  *[]label // where the labels being read go
	words words

	created, updated []byte // see standIns
	removed          [][]byte

	// See otherEras.
	given                 given
	conditions, updatedAt []byte
	inner                 *jsontext.Decoder
	innerBuf              bytes.Buffer
	condition             condition
	gathered              gathered
}

// Given says which fields an item has whose absence tells something. Null is
// absent.
type given struct{ phase, observed, href, createdBy bool }

// New returns a scanner. It reads labels only if it is told to.
func New(labels bool) *Scanner {
	s := &Scanner{wantLabels: labels, words: words{}}
	s.item.Labels.words = s.words
	s.dec, s.inner = jsontext.NewDecoder(&s.buf), jsontext.NewDecoder(&s.buf)
	return s
}

// Scan calls visit for each item of page, in order, and returns what else the
// page says. It stops at the first error of visit and returns it. If the page
// turns out to be broken, the items before that place have been visited.
func (s *Scanner) Scan(page []byte, visit func(*Item) error) (Envelope, error) {
	s.openText(page)
	defer s.closeText()
	env := Envelope{Total: -1, Sorted: true}
	if err := s.readList(&env, visit); err != nil {
		return env, err
	}
	return env, s.expectEnd("list")
}

// ScanOne calls visit for one resource that stands alone, and returns its
// error. What is no resource is visited with its fault; what is no JSON is an
// error.
func (s *Scanner) ScanOne(object []byte, visit func(*Item) error) error {
	s.openText(object)
	defer s.closeText()
	if err := s.readItem(); err != nil {
		return err
	}
	if err := s.expectEnd("resource"); err != nil {
		return err
	}
	return visit(&s.item)
}

func (s *Scanner) openText(text []byte) {
	s.page = text
	s.buf = *bytes.NewBuffer(text)
	resetDecoder(s.dec, &s.buf)
}

func resetDecoder(dec *jsontext.Decoder, text *bytes.Buffer) {
	// Duplicate names are not our business, and looking for them is the
	// larger part of what walking JSON costs. Text that is not Unicode, such
	// as half a surrogate pair, is the matter of the one resource that has it.
	dec.Reset(text, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

func (s *Scanner) closeText() { s.page, s.buf = nil, bytes.Buffer{} }

func (s *Scanner) expectEnd(of string) error {
	if _, err := s.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("trailing data after the %s at byte %d", of, s.dec.InputOffset())
	}
	return nil
}

func (s *Scanner) readList(env *Envelope, visit func(*Item) error) error {
	kind := s.dec.PeekKind()
	if kind == '[' {
		env.Bare = true
		return s.readItems(env, visit)
	}
	if kind == '{' {
		return s.readEnvelope(env, visit)
	}
	if err := s.skipValue(); err != nil {
		return err
	}
	return errNotList
}

func (s *Scanner) readEnvelope(env *Envelope, visit func(*Item) error) error {
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	hasItems := false
	for s.dec.PeekKind() != '}' {
		name, err := s.readName()
		if err != nil {
			return err
		}
		if string(name) == "items" {
			hasItems = true
			err = s.readItems(env, visit)
		} else {
			err = s.envelopeField(env, string(name))
		}
		if err != nil {
			return err
		}
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	if !hasItems {
		return errNoItems
	}
	return nil
}

// What makes a page none.
var (
	errNotList  = errors.New("not a list: neither an object with items nor an array")
	errNoItems  = errors.New("not a list: the object has no items")
	errNotItems = errors.New("not a list: items is not an array")
)

// envelopeField reads a field beside the items.
func (s *Scanner) envelopeField(env *Envelope, name string) error {
	switch name {
	case "continue":
		return s.readText(&env.Continue)
	case "cursor":
		return s.readText(&env.Cursor)
	case "total":
		return s.readTotal(env)
	case "more":
		return s.readMore(env)
	case "removed":
		return s.removedIDs(env)
	}
	return s.skipValue()
}

// readItems reads the array of items; null is an empty one.
func (s *Scanner) readItems(env *Envelope, visit func(*Item) error) error {
	if kind := s.dec.PeekKind(); kind != '[' {
		if err := s.skipValue(); err != nil || kind == 'n' {
			return err
		}
		return errNotItems
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	for s.dec.PeekKind() != ']' {
		if err := s.readItem(); err != nil {
			return err
		}
		env.countItem(s.item.ID)
		if err := visit(&s.item); err != nil {
			return err
		}
	}
	_, err := s.dec.ReadToken()
	return err
}

// countItem counts an item.
func (e *Envelope) countItem(id []byte) {
	if e.Items++; e.Items == 1 {
		e.First = id
	}
	if len(id) == 0 {
		return
	}
	if e.Sorted && bytes.Compare(e.Last, id) >= 0 {
		e.Sorted = false
	}
	e.Last = id
}

// readText reads a string, or passes over what is none.
func (s *Scanner) readText(to *string) error {
	v, err := s.dec.ReadValue()
	if err != nil || v.Kind() != '"' {
		return err
	}
	*to = string(s.unquoteString(v))
	return nil
}

func (s *Scanner) readMore(env *Envelope) error {
	v, err := s.dec.ReadValue()
	env.More = err == nil && v.Kind() == 't'
	return err
}

// removedIDs reads an array of ids. An element that is none names nothing that
// anybody could have, and is passed over.
func (s *Scanner) removedIDs(env *Envelope) error {
	s.removed = s.removed[:0]
	if s.dec.PeekKind() != '[' {
		return s.skipValue()
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	for s.dec.PeekKind() != ']' {
		v, err := s.dec.ReadValue()
		if err != nil {
			return err
		}
		if v.Kind() == '"' {
			s.removed = append(s.removed, s.unquoteString(v))
		}
	}
	env.Removed = s.removed
	_, err := s.dec.ReadToken()
	return err
}

func (s *Scanner) readTotal(env *Envelope) error {
	v, err := s.dec.ReadValue()
	if err != nil {
		return err
	}
	if n, ok := parseInt(v); ok && n >= 0 {
		env.Total = n
	}
	return nil
}

// skipValue passes over the next value. Reading it whole is cheaper than walking
// its tokens.
func (s *Scanner) skipValue() error {
	_, err := s.dec.ReadValue()
	return err
}

// readName reads the name of a field.
func (s *Scanner) readName() ([]byte, error) {
	v, err := s.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	return s.unquoteString(v), nil
}

// unquoteString gives the text of the string that was just read. It is part of the
// page, unless it had to be unescaped.
func (s *Scanner) unquoteString(v jsontext.Value) []byte {
	if bytes.IndexByte(v, '\\') >= 0 {
		return unescapeString(v)
	}
	end := int(s.dec.InputOffset())
	return s.page[end-len(v)+1 : end-1]
}

// unescapeString gives the text of a string, with U+FFFD for what is not Unicode in
// it. That is the only error there can be, for the decoder has read it.
func unescapeString(v jsontext.Value) []byte {
	text, _ := jsontext.AppendUnquote(nil, v)
	return text
}
