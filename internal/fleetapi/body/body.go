// Package body decodes the JSON bodies of requests. It refuses invalid JSON, and the refusal names
// the place. Unknown members are ignored, as in the public HyperFleet API, except in PATCH and in
// requests that ask for strictness.
package body

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fleetloop/fleetloop/internal/fleetapi/problem"
)

// MaxDepth is the maximum nesting depth of arrays and objects.
const MaxDepth = 64

// Read decodes the body into v. The body is one JSON value of at most limit bytes. Duplicate
// members are errors. Unknown members, including names in the wrong case, are errors in a PATCH and
// in a request with the parameter strict=true, and ignored otherwise.
func Read(w http.ResponseWriter, r *http.Request, limit int64, v any) *problem.Error {
	types := []string{"application/json"}
	if r.Method == http.MethodPatch {
		types = append(types, "application/merge-patch+json")
	}
	if err := CheckType(r, types...); err != nil {
		return err
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return problem.New(problem.BodyTooLarge, "the body is larger than %d bytes", tooLarge.Limit)
		}
		return problem.New(problem.InvalidBody, "the fleet API could not read the whole body; send the request again")
	}
	strict, err := strconv.ParseBool(r.URL.Query().Get("strict"))
	return decodeJSON("the body", data, v, r.Method == http.MethodPatch || err == nil && strict)
}

// Decode decodes one JSON value into v and refuses unknown members. A refusal names the value by
// the text in the first argument, such as "the body".
func Decode(what string, data []byte, v any) *problem.Error { return decodeJSON(what, data, v, true) }

func decodeJSON(what string, data []byte, v any, strict bool) *problem.Error {
	if len(bytes.TrimSpace(data)) == 0 {
		return problem.New(problem.InvalidBody, "%s is empty; send a JSON object", what)
	}
	if err := checkDepth(what, data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v, json.RejectUnknownMembers(strict)); err != nil {
		return explainError(what, err)
	}
	return nil
}

// CheckType requires one of the media types, or no type at all. A request without a type is refused
// if a browser sends it for a page of another site: such a request needs no preflight.
func CheckType(r *http.Request, types ...string) *problem.Error {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return problem.New(problem.UnsupportedMediaType, "content encoding %q is not supported; send the body without encoding", e)
	}
	given := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(given)
	if err == nil && slices.Contains(types, media) || given == "" && http.NewCrossOriginProtection().Check(r) == nil {
		return nil
	}
	return problem.New(problem.UnsupportedMediaType, "content type %q is not supported; send %s", given, types[0])
}

func checkDepth(what string, data []byte) *problem.Error {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := d.ReadToken(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return explainError(what, err)
		}
		if d.StackDepth() > MaxDepth {
			return problem.New(problem.InvalidBody, "%s is nested deeper than %d levels", what, MaxDepth)
		}
	}
}

// explainError converts a decoding error into a problem for the client.
func explainError(what string, err error) *problem.Error {
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return problem.New(problem.InvalidBody, "%s occurs twice", formatPointer(what, s.JSONPointer))
		}
		return problem.New(problem.InvalidBody, "%s is not valid JSON at byte %d, near %s: %s", what, s.ByteOffset, formatPointer(what, s.JSONPointer), parseReason(s.Err))
	}
	s, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return problem.New(problem.InvalidBody, "%s is not valid JSON: it ends too early", what)
	}
	if errors.Is(err, json.ErrUnknownName) {
		return problem.New(problem.InvalidBody, "%s is not a known field", formatPointer(what, s.JSONPointer))
	}
	if s.Err != nil {
		return problem.New(problem.InvalidBody, "%s is invalid: %s", formatPointer(what, s.JSONPointer), parseReason(s.Err))
	}
	return problem.New(problem.InvalidBody, "%s must not be %s", formatPointer(what, s.JSONPointer), kindName(s.JSONKind))
}

func kindName(k jsontext.Kind) string {
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

func parseReason(err error) string { return strings.TrimPrefix(err.Error(), "jsontext: ") }

// formatPointer names the place of an error.
func formatPointer(what string, p jsontext.Pointer) string {
	if p == "" {
		return what
	}
	return "field " + string(p)
}
