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

	// First is the id of the first item, part of the page.
	First []byte
}

// An Item is one resource on a page. It and all that it refers to are valid
// only until the visitor returns.
type Item struct {
	ID       []byte
	Resource decision.Resource

	// Labels are those of the resource, if the scanner was asked for them.
	Labels Labels

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
		return "no_id"
	case FaultWrongType:
		return "wrong_type"
	case FaultTime:
		return "unreadable_time"
	case NumFaults:
	}
	return "unknown"
}

// Skips reports whether an item with this fault can not be judged.
func (f Fault) Skips() bool { return f != FaultNone && f != FaultTime }

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
}

// New returns a scanner. It reads labels only if it is told to.
func New(labels bool) *Scanner {
	s := &Scanner{wantLabels: labels, words: words{}}
	s.item.Labels.words = s.words
	s.dec = jsontext.NewDecoder(&s.buf)
	return s
}

// Scan calls visit for each item of page, in order, and returns what else the
// page says. It stops at the first error of visit and returns it. If the page
// turns out to be broken, the items before that place have been visited.
func (s *Scanner) Scan(page []byte, visit func(*Item) error) (Envelope, error) {
	s.page = page
	s.buf = *bytes.NewBuffer(page)
	// Duplicate names are not our business, and looking for them is the
	// larger part of what walking JSON costs. Text that is not Unicode, such
	// as half a surrogate pair, is the matter of the one resource that has it.
	s.dec.Reset(&s.buf, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	defer func() { s.page, s.buf = nil, bytes.Buffer{} }()

	env := Envelope{Total: -1}
	if err := s.list(&env, visit); err != nil {
		return env, err
	}
	if _, err := s.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return env, fmt.Errorf("something follows the list at byte %d", s.dec.InputOffset())
	}
	return env, nil
}

func (s *Scanner) list(env *Envelope, visit func(*Item) error) error {
	kind := s.dec.PeekKind()
	if kind == '[' {
		env.Bare = true
		return s.items(env, visit)
	}
	if kind == '{' {
		return s.envelope(env, visit)
	}
	if err := s.skip(); err != nil {
		return err
	}
	return errors.New("not a list: neither an object with items nor an array")
}

func (s *Scanner) envelope(env *Envelope, visit func(*Item) error) error {
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	hasItems := false
	for s.dec.PeekKind() != '}' {
		name, err := s.name()
		if err != nil {
			return err
		}
		switch string(name) {
		case "items":
			hasItems = true
			err = s.items(env, visit)
		case "continue":
			err = s.continueToken(env)
		case "total":
			err = s.total(env)
		default:
			err = s.skip()
		}
		if err != nil {
			return err
		}
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	if !hasItems {
		return errors.New("not a list: the object has no items")
	}
	return nil
}

// items reads the array of items; null is an empty one.
func (s *Scanner) items(env *Envelope, visit func(*Item) error) error {
	if kind := s.dec.PeekKind(); kind != '[' {
		if err := s.skip(); err != nil || kind == 'n' {
			return err
		}
		return errors.New("not a list: items is not an array")
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	for s.dec.PeekKind() != ']' {
		if err := s.readItem(); err != nil {
			return err
		}
		if env.Items++; env.Items == 1 {
			env.First = s.item.ID
		}
		if err := visit(&s.item); err != nil {
			return err
		}
	}
	_, err := s.dec.ReadToken()
	return err
}

func (s *Scanner) continueToken(env *Envelope) error {
	v, err := s.dec.ReadValue()
	if err != nil || v.Kind() != '"' {
		return err
	}
	env.Continue = string(s.unquote(v))
	return nil
}

func (s *Scanner) total(env *Envelope) error {
	v, err := s.dec.ReadValue()
	if err != nil {
		return err
	}
	if n, ok := parseInt(v); ok && n >= 0 {
		env.Total = n
	}
	return nil
}

// skip passes over the next value. Reading it whole is cheaper than walking
// its tokens.
func (s *Scanner) skip() error {
	_, err := s.dec.ReadValue()
	return err
}

// name reads the name of a field.
func (s *Scanner) name() ([]byte, error) {
	v, err := s.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	return s.unquote(v), nil
}

// unquote gives the text of the string that was just read. It is part of the
// page, unless it had to be unescaped.
func (s *Scanner) unquote(v jsontext.Value) []byte {
	if bytes.IndexByte(v, '\\') >= 0 {
		return unescape(v)
	}
	end := int(s.dec.InputOffset())
	return s.page[end-len(v)+1 : end-1]
}

// unescape gives the text of a string, with U+FFFD for what is not Unicode in
// it. That is the only error there can be, for the decoder has read it.
func unescape(v jsontext.Value) []byte {
	text, _ := jsontext.AppendUnquote(nil, v)
	return text
}
