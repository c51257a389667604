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

// ScanPageStream is ScanPage for a page that starts with head and continues in rest. It holds one
// resource at a time, whatever the length of the page. The error is that of rest if it has one.
func (s *Scanner) ScanPageStream(head []byte, rest io.Reader, visit func(*Item) error) (Envelope, error) {
	defer s.in.releaseText()
	page := io.MultiReader(bytes.NewReader(head), bufio.NewReaderSize(rest, streamBufferSize))
	limited := &valueReader{src: page, left: MaxValueSize}
	var stream jsonReader
	stream.resetToStream(limited)

	readValue := func() (jsontext.Value, error) {
		value, err := stream.dec.ReadValue()
		limited.left = MaxValueSize // for the next value
		return value, err
	}
	env := Envelope{Total: -1, Sorted: true}
	var lastID []byte // the buffer of env.Last
	readItem := func() error {
		value, err := readValue()
		if err != nil {
			return err
		}
		s.in.resetToText(value)
		if err := s.items.readNextItem(); err != nil {
			return err
		}
		env.recordItemID(s.items.item.ID)
		// The ids are parts of the value, which the next read overwrites.
		if env.Items == 1 {
			env.First = bytes.Clone(env.First)
		}
		lastID = append(lastID[:0], env.Last...)
		env.Last = lastID
		return visit(&s.items.item)
	}
	readField := func(name []byte) error {
		field := string(name) // name is valid until the next read
		value, err := readValue()
		if err != nil {
			return err
		}
		s.in.resetToText(bytes.Clone(value)) // the field outlives the value
		return s.readEnvelopeField(&env, field)
	}
	err := readListPage(&stream, &env, readItem, readField)
	return env, err
}

// A valueReader fails when one value grows too large.
type valueReader struct {
	src  io.Reader
	left int
}

// Read reads a part of a value.
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
func HasNoLabels(page []byte, isWholePage bool) bool {
	_, err := NewScanner(true).ScanPage(page, func(it *Item) error {
		if it.HasLabels {
			return errLabelsFound
		}
		return nil
	})
	if errors.Is(err, errLabelsFound) {
		return false
	}
	return err == nil || !isWholePage // the beginning of a page ends within a value
}
