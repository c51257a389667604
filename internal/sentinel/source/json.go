package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// A jsonReader reads JSON values from a text in memory, or from a stream. Texts that it returns are
// parts of the text in memory; those of a stream are valid until the next read.
type jsonReader struct {
	dec  jsontext.Decoder
	text []byte       // nil for a stream
	buf  bytes.Buffer // the text, for dec
}

// resetToText makes the reader read a text in memory.
func (r *jsonReader) resetToText(text []byte) {
	r.text = text
	r.buf = *bytes.NewBuffer(text)
	r.resetToStream(&r.buf)
}

// resetToStream makes the reader read a stream.
func (r *jsonReader) resetToStream(in io.Reader) {
	// Duplicate names are allowed, because detecting them is most of the cost of walking JSON.
	// Invalid Unicode, such as half a surrogate pair, affects only the resource that contains it.
	r.dec.Reset(in, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

func (r *jsonReader) releaseText() { r.text, r.buf = nil, bytes.Buffer{} }

// expectEndAfter returns an error if anything follows.
func (r *jsonReader) expectEndAfter(what string) error {
	_, err := r.dec.ReadToken()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("after the %s: %w", what, err)
	}
	return fmt.Errorf("trailing data after the %s at byte %d", what, r.dec.InputOffset())
}

// readObjectFields calls readField for each name of the next value, an object.
func (r *jsonReader) readObjectFields(readField func(name []byte) error) error {
	if _, err := r.dec.ReadToken(); err != nil {
		return err
	}
	for r.dec.PeekKind() != '}' {
		name, err := r.dec.ReadValue()
		if err != nil {
			return err
		}
		if err := readField(r.unquoteLastString(name)); err != nil {
			return err
		}
	}
	_, err := r.dec.ReadToken()
	return err
}

// readArrayElements calls readElement for each element of the next value, an array.
func (r *jsonReader) readArrayElements(readElement func() error) error {
	if _, err := r.dec.ReadToken(); err != nil {
		return err
	}
	for r.dec.PeekKind() != ']' {
		if err := readElement(); err != nil {
			return err
		}
	}
	_, err := r.dec.ReadToken()
	return err
}

// skipValue skips the next value. Reading it at once is cheaper than walking its tokens.
func (r *jsonReader) skipValue() error {
	_, err := r.dec.ReadValue()
	return err
}

// unquoteLastString returns the text of the string that was just read.
func (r *jsonReader) unquoteLastString(v jsontext.Value) []byte {
	if bytes.IndexByte(v, '\\') >= 0 {
		return unescapeString(v)
	}
	if r.text == nil {
		return v[1 : len(v)-1]
	}
	end := int(r.dec.InputOffset())
	return r.text[end-len(v)+1 : end-1]
}

// unescapeString returns the text of a string, with U+FFFD in place of invalid Unicode. That is the
// only possible error, because the decoder has read the string.
func unescapeString(v jsontext.Value) []byte {
	text, _ := jsontext.AppendUnquote(nil, v)
	return text
}
