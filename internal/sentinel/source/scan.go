package source

import (
	"bytes"
	"errors"

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
	in      jsonReader
	items   itemReader
	removed [][]byte
}

// NewScanner returns a scanner. It reads labels only if withLabels is true.
func NewScanner(withLabels bool) *Scanner {
	words := internedWords{}
	s := &Scanner{items: itemReader{wantLabels: withLabels, words: words}}
	s.items.in = &s.in
	s.items.item.Labels.words = words
	return s
}

// ScanPage calls visit for each item of page, in order, and returns the other fields of the page. It
// stops at the first error of visit and returns it. If the page turns out to be broken, the items
// before that position have been visited.
func (s *Scanner) ScanPage(page []byte, visit func(*Item) error) (Envelope, error) {
	s.in.resetToText(page)
	defer s.in.releaseText()
	env := Envelope{Total: -1, Sorted: true}
	readItem := func() error {
		if err := s.items.readNextItem(); err != nil {
			return err
		}
		env.recordItemID(s.items.item.ID)
		return visit(&s.items.item)
	}
	readField := func(name []byte) error { return s.readEnvelopeField(&env, string(name)) }
	err := readListPage(&s.in, &env, readItem, readField)
	return env, err
}

// ScanResource calls visit for a single resource outside a list, and returns its error. A value that is
// not a resource is visited with its fault; invalid JSON is an error.
func (s *Scanner) ScanResource(object []byte, visit func(*Item) error) error {
	s.in.resetToText(object)
	defer s.in.releaseText()
	if err := s.items.readNextItem(); err != nil {
		return err
	}
	if err := s.in.expectEndAfter("resource"); err != nil {
		return err
	}
	return visit(&s.items.item)
}

// Why a page is invalid.
var (
	errNotList  = errors.New("not a list: neither an object with items nor an array")
	errNoItems  = errors.New("not a list: the object has no items")
	errNotItems = errors.New("not a list: items is not an array")
)

// readListPage reads a page: an object with items, or an array of them. It calls readItem before each
// item, and readField before the value of each other field.
func readListPage(
	in *jsonReader, env *Envelope, readItem func() error, readField func(name []byte) error,
) error {
	kind := in.dec.PeekKind()
	if kind != '[' && kind != '{' {
		if err := in.skipValue(); err != nil {
			return err // not JSON
		}
		return errNotList
	}
	var err error
	hasItems := false
	if kind == '[' {
		env.Bare, hasItems = true, true
		err = in.readArrayElements(readItem)
	} else {
		err = in.readObjectFields(func(name []byte) error {
			if string(name) != "items" {
				return readField(name)
			}
			hasItems = true
			return readItemsArray(in, readItem)
		})
	}
	if err != nil {
		return err
	}
	if !hasItems {
		return errNoItems
	}
	return in.expectEndAfter("list")
}

// readItemsArray reads the array of items; null counts as an empty array.
func readItemsArray(in *jsonReader, readItem func() error) error {
	kind := in.dec.PeekKind()
	if kind == '[' {
		return in.readArrayElements(readItem)
	}
	if err := in.skipValue(); err != nil || kind == 'n' {
		return err
	}
	return errNotItems
}

// recordItemID counts an item, and compares its id with the one before. An empty id is only counted.
func (e *Envelope) recordItemID(id []byte) {
	e.Items++
	if e.Items == 1 {
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

// readEnvelopeField reads a field outside the items. It skips a value of another type.
func (s *Scanner) readEnvelopeField(env *Envelope, name string) error {
	if name == "removed" {
		return s.readRemovedIDs(env)
	}
	v, err := s.in.dec.ReadValue()
	if err != nil {
		return err
	}
	switch kind := v.Kind(); {
	case name == "continue" && kind == '"':
		env.Continue = string(s.in.unquoteLastString(v))
	case name == "cursor" && kind == '"':
		env.Cursor = string(s.in.unquoteLastString(v))
	case name == "total":
		if n, ok := parseJSONInteger(v); ok && n >= 0 {
			env.Total = n
		}
	case name == "more":
		env.More = kind == 't'
	}
	return nil
}

// readRemovedIDs reads an array of ids. It skips elements that are not ids, because no resource can
// have them.
func (s *Scanner) readRemovedIDs(env *Envelope) error {
	s.removed = s.removed[:0]
	if s.in.dec.PeekKind() != '[' {
		return s.in.skipValue()
	}
	err := s.in.readArrayElements(func() error {
		v, err := s.in.dec.ReadValue()
		if err == nil && v.Kind() == '"' {
			s.removed = append(s.removed, s.in.unquoteLastString(v))
		}
		return err
	})
	env.Removed = s.removed
	return err
}
