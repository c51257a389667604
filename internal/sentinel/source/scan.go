package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

// An Envelope holds the fields of a page other than its items.
type Envelope struct {
	// Items is the number of items on the page, including broken ones.
	Items int

	// Continue is the token of the next page; empty if the server sent none.
	Continue string

	// Total is the server's count of items on all pages, or -1 if it sent none.
	Total int64

	// Bare is true for a page that is an array without an envelope.
	Bare bool

	// First and Last are the ids of the first item and of the last that has
	// one. They are parts of the page, or valid until the next scan.
	First, Last []byte

	// Sorted is true if the ids ascend, byte by byte and without duplicates.
	Sorted bool

	// Cursor is where the changes start that the page does not contain yet; empty if the server
	// sent none.
	Cursor string

	// More says that further changes follow after the page.
	More bool

	// Removed holds the ids of removed resources, for a page of changes. They are parts of the
	// page, and the slice is valid until the next scan.
	Removed [][]byte
}

// An Item is one resource on a page. It and everything it refers to are valid only until the
// visitor returns.
type Item struct {
	ID       []byte
	Resource decision.Resource

	// Labels holds the labels of the resource, if the scanner reads labels. HasLabels says that it
	// has the field, even empty or null.
	Labels    Labels
	HasLabels bool

	// Public says that the resource has the format of the public API, which always has href and
	// created_by.
	Public bool

	// Fault is the fault of the item, at Field. If Fault.Skips, no other field of the item is
	// valid, except that ID is set if it was found.
	Fault Fault
	Field string
}

// A Fault is the fault of an item. The set is closed, so that it can be the label of a metric.
type Fault uint8

// The faults.
const (
	FaultNone      Fault = iota
	FaultNotObject       // not a JSON object
	FaultNoID            // no id, or an empty one
	FaultWrongType       // a field that affects decisions has another type
	FaultTime            // an invalid time, which counts as missing
	FaultStatus          // no phase, and only unknown conditions; the item is not ready

	// NumFaults is the number of faults, including FaultNone.
	NumFaults
)

// String returns the fault as logs and metrics show it.
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

// Skips reports whether no decision is possible for an item with this fault.
func (f Fault) Skips() bool { return f != FaultNone && f != FaultTime && f != FaultStatus }

// A Scanner reads pages, item by item, into one reused struct. It is not safe for concurrent use;
// its memory is reused from page to page.
//
// It decodes only the fields that affect decisions and skips all others without parsing them, and
// it allocates nothing per item. A visitor sees each item together with its raw bytes, so that the
// few items to be published can be parsed in full.
//
// An invalid item is passed to the visitor with its Fault and never invalidates the page. Only a
// page that is not JSON, or not a list, is an error.
type Scanner struct {
	dec        *jsontext.Decoder
	buf        bytes.Buffer
	page       []byte
	wantLabels bool

	item  Item
	into  *[]label // destination of the labels being read
	words internedWords

	created, updated []byte // see parseFallbackTimes
	removed          [][]byte

	// See fillFromLegacyFormats.
	given                 givenFields
	conditions, updatedAt []byte
	inner                 *jsontext.Decoder
	innerBuf              bytes.Buffer
	condition             statusCondition
	gathered              gatheredStatus
}

// givenFields says which significant fields an item has. Null counts as missing.
type givenFields struct{ phase, observed, href, createdBy bool }

// NewScanner returns a scanner. It reads labels only if withLabels is true.
func NewScanner(withLabels bool) *Scanner {
	s := &Scanner{wantLabels: withLabels, words: internedWords{}}
	s.item.Labels.words = s.words
	s.dec, s.inner = jsontext.NewDecoder(&s.buf), jsontext.NewDecoder(&s.buf)
	return s
}

// Scan calls visit for each item of page, in order, and returns the other fields of the page. It
// stops at the first error of visit and returns it. If the page turns out to be broken, the items
// before that position have been visited.
func (s *Scanner) Scan(page []byte, visit func(*Item) error) (Envelope, error) {
	s.openText(page)
	defer s.closeText()
	env := Envelope{Total: -1, Sorted: true}
	if err := s.readList(&env, visit); err != nil {
		return env, err
	}
	return env, s.expectEnd("list")
}

// ScanOne calls visit for a single resource outside a list, and returns its error. A value that is
// not a resource is visited with its fault; invalid JSON is an error.
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
	// Duplicate names are allowed, because detecting them is most of the cost of walking JSON.
	// Invalid Unicode, such as half a surrogate pair, affects only the resource that contains it.
	dec.Reset(text, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

func (s *Scanner) closeText() { s.page, s.buf = nil, bytes.Buffer{} }

func (s *Scanner) expectEnd(what string) error {
	if _, err := s.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("trailing data after the %s at byte %d", what, s.dec.InputOffset())
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
			err = s.readEnvelopeField(env, string(name))
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

// Why a page is invalid.
var (
	errNotList  = errors.New("not a list: neither an object with items nor an array")
	errNoItems  = errors.New("not a list: the object has no items")
	errNotItems = errors.New("not a list: items is not an array")
)

// readEnvelopeField reads a field outside the items.
func (s *Scanner) readEnvelopeField(env *Envelope, name string) error {
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
		return s.readRemovedIDs(env)
	}
	return s.skipValue()
}

// readItems reads the array of items; null counts as an empty array.
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

// readText reads a string, or skips any other value.
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

// readRemovedIDs reads an array of ids. It skips elements that are not ids, because no resource can
// have them.
func (s *Scanner) readRemovedIDs(env *Envelope) error {
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

// skipValue skips the next value. Reading it at once is cheaper than walking its tokens.
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

// unquoteString returns the text of the string that was just read. It is part of the page, unless
// it had to be unescaped.
func (s *Scanner) unquoteString(v jsontext.Value) []byte {
	if bytes.IndexByte(v, '\\') >= 0 {
		return unescapeString(v)
	}
	end := int(s.dec.InputOffset())
	return s.page[end-len(v)+1 : end-1]
}

// unescapeString returns the text of a string, with U+FFFD in place of invalid Unicode. That is the
// only possible error, because the decoder has read the string.
func unescapeString(v jsontext.Value) []byte {
	text, _ := jsontext.AppendUnquote(nil, v)
	return text
}
