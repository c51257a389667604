// Package body reads the JSON of a request, strictly: what is not understood
// in full is refused, and the refusal says where.
package body

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fleetloop/fleetloop/internal/fleetapi/problem"
)

// MaxDepth is how deep arrays and objects may nest.
const MaxDepth = 64

// Read reads the body into v. The body is one JSON value of at most limit
// bytes. Object members that v does not have, members that are there twice
// and names in the wrong case are errors.
func Read(w http.ResponseWriter, r *http.Request, limit int64, v any) *problem.Error {
	if err := checkType(r); err != nil {
		return err
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return problem.New(problem.BodyTooLarge, "the body is larger than %d bytes", tooLarge.Limit)
		}
		return problem.New(problem.InvalidBody, "the body could not be read to its end")
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return problem.New(problem.InvalidBody, "the body is empty; it has to be a JSON object")
	}
	if err := checkDepth(data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v, json.RejectUnknownMembers(true)); err != nil {
		return explain(err)
	}
	return nil
}

// checkType wants JSON to be announced. A request without a type is refused,
// too: it is the one that a foreign web page can make a browser send.
func checkType(r *http.Request) *problem.Error {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return problem.New(problem.UnsupportedMediaType, "content encoding %q is not understood; send the body as it is", e)
	}
	given := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(given)
	if err == nil && (media == "application/json" || r.Method == http.MethodPatch && media == "application/merge-patch+json") {
		return nil
	}
	return problem.New(problem.UnsupportedMediaType, "content type %q is not understood; send application/json", given)
}

func checkDepth(data []byte) *problem.Error {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := d.ReadToken(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return explain(err)
		}
		if d.StackDepth() > MaxDepth {
			return problem.New(problem.InvalidBody, "the body nests deeper than %d", MaxDepth)
		}
	}
}

// explain says in the client's terms what is wrong with the body.
func explain(err error) *problem.Error {
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return problem.New(problem.InvalidBody, "%s is there twice", place(s.JSONPointer))
		}
		return problem.New(problem.InvalidBody, "the body is not valid JSON at byte %d, near %s: %s", s.ByteOffset, place(s.JSONPointer), reason(s.Err))
	}
	s, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return problem.New(problem.InvalidBody, "the body is not valid JSON: it ends too early")
	}
	if errors.Is(err, json.ErrUnknownName) {
		return problem.New(problem.InvalidBody, "%s is not a known field", place(s.JSONPointer))
	}
	if s.Err != nil {
		return problem.New(problem.InvalidBody, "%s is not usable: %s", place(s.JSONPointer), reason(s.Err))
	}
	return problem.New(problem.InvalidBody, "%s must not be %s", place(s.JSONPointer), kind(s.JSONKind))
}

func kind(k jsontext.Kind) string {
	switch k {
	case jsontext.KindBeginObject:
		return "an object"
	case jsontext.KindBeginArray:
		return "a list"
	case jsontext.KindString:
		return "a text"
	case jsontext.KindNumber:
		return "a number"
	case jsontext.KindNull:
		return "null"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "true or false"
	case jsontext.KindInvalid, jsontext.KindEndObject, jsontext.KindEndArray:
	}
	return "what it is"
}

func reason(err error) string { return strings.TrimPrefix(err.Error(), "jsontext: ") }

// place names a spot in the body as the fields of an error do: a.b[2].
func place(p jsontext.Pointer) string {
	if p == "" {
		return "the body"
	}
	return "field " + string(p)
}
