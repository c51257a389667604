package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxValueSize limits one resource, or one other field, of a page that is read as a stream, in
// bytes.
const MaxValueSize = 16 << 20

// streamBufferSize is the number of bytes of a stream that are read at once.
const streamBufferSize = 64 << 10

// ScanStream is Scan for a page that starts with head and continues in rest. It holds one resource
// at a time, whatever the length of the page. The error is that of rest if it has one.
func (s *Scanner) ScanStream(head []byte, rest io.Reader, visit func(*Item) error) (Envelope, error) {
	in := &valueReader{src: io.MultiReader(bytes.NewReader(head), bufio.NewReaderSize(rest, streamBufferSize)), left: MaxValueSize}
	st := pageStream{
		Scanner: s, in: in, visit: visit, env: Envelope{Total: -1, Sorted: true},
		dec: jsontext.NewDecoder(in, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
	}
	defer s.closeText()
	if err := st.readList(); err != nil {
		return st.env, err
	}
	if _, err := st.dec.ReadToken(); !errors.Is(err, io.EOF) {
		if err != nil {
			return st.env, err
		}
		return st.env, fmt.Errorf("trailing data after the list at byte %d", st.dec.InputOffset())
	}
	return st.env, nil
}

// A pageStream is a page that is read value by value. The scanner processes each value once it is
// complete.
type pageStream struct {
	*Scanner
	dec   *jsontext.Decoder
	in    *valueReader
	env   Envelope
	visit func(*Item) error
	last  []byte // the id to which env.Last refers
}

// readValue reads the next value. It is valid until the next read.
func (st *pageStream) readValue() (jsontext.Value, error) {
	v, err := st.dec.ReadValue()
	st.in.left = MaxValueSize
	return v, err
}

func (st *pageStream) readList() error {
	kind := st.dec.PeekKind()
	if kind == '[' {
		st.env.Bare = true
		return st.readItems()
	}
	if kind == '{' {
		return st.readEnvelope()
	}
	if _, err := st.readValue(); err != nil {
		return err
	}
	return errNotList
}

func (st *pageStream) readEnvelope() error {
	if _, err := st.dec.ReadToken(); err != nil {
		return err
	}
	hasItems := false
	for st.dec.PeekKind() != '}' {
		name, err := st.dec.ReadToken()
		if err != nil {
			return err
		}
		if name := name.String(); name == "items" {
			hasItems = true
			err = st.readItems()
		} else {
			err = st.readField(name)
		}
		if err != nil {
			return err
		}
	}
	if _, err := st.dec.ReadToken(); err != nil {
		return err
	}
	if !hasItems {
		return errNoItems
	}
	return nil
}

// readField reads a field outside the items, which outlives the value read.
func (st *pageStream) readField(name string) error {
	v, err := st.readValue()
	if err != nil {
		return err
	}
	st.openText(bytes.Clone(v))
	return st.readEnvelopeField(&st.env, name)
}

func (st *pageStream) readItems() error {
	if kind := st.dec.PeekKind(); kind != '[' {
		if _, err := st.readValue(); err != nil || kind == 'n' {
			return err
		}
		return errNotItems
	}
	if _, err := st.dec.ReadToken(); err != nil {
		return err
	}
	for st.dec.PeekKind() != ']' {
		v, err := st.readValue()
		if err != nil {
			return err
		}
		st.openText(v)
		if err := st.readItem(); err != nil {
			return err
		}
		st.countItem()
		if err := st.visit(&st.item); err != nil {
			return err
		}
	}
	_, err := st.dec.ReadToken()
	return err
}

// countItem counts the item, and stores the ids that outlive it.
func (st *pageStream) countItem() {
	st.env.countItem(st.item.ID)
	if st.env.Items == 1 {
		st.env.First = bytes.Clone(st.env.First)
	}
	st.last = append(st.last[:0], st.env.Last...)
	st.env.Last = st.last
}

// A valueReader fails when one value grows too large.
type valueReader struct {
	src  io.Reader
	left int
}

func (r *valueReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, fmt.Errorf("a value of the list exceeds %d bytes", MaxValueSize)
	}
	n, err := r.src.Read(p)
	r.left -= n
	return n, err
}

// errLabelsFound ends a search in a page.
var errLabelsFound = errors.New("found")

// HasNoLabels reports whether no resource of a page has the field labels. If page is only the
// beginning of a page, only the resources in it count; a whole page must be readable.
func HasNoLabels(page []byte, whole bool) bool {
	_, err := NewScanner(true).Scan(page, func(it *Item) error {
		if it.HasLabels {
			return errLabelsFound
		}
		return nil
	})
	return err == nil || !whole && !errors.Is(err, errLabelsFound)
}
