// Package body reads the JSON of a request. What is wrong in it is refused, and
// the refusal says where. Members that are not known are ignored as the public
// HyperFleet API does, but for PATCH, and for requests that ask for strictness.
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

// MaxDepth is how deep arrays and objects may nest.
const MaxDepth = 64

// Read reads the body into v. The body is one JSON value of at most limit
// bytes. Members that are there twice are errors. Members that v does not have,
// names in the wrong case among them, are errors of a PATCH and of a request with
// the parameter strict=true, and ignored otherwise.
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

// Decode reads one JSON value into v and refuses members that v does not have. A
// refusal calls it what it is, "the body" or a part of that.
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

// CheckType wants one of some media types to be announced, or none at all. A
// request without a type is refused where a browser sends it on behalf of a page
// of another site: it is one that such a page can send without asking us first.
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

// explainError says in the client's terms what is wrong.
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

// formatPointer names a spot.
func formatPointer(what string, p jsontext.Pointer) string {
	if p == "" {
		return what
	}
	return "field " + string(p)
}
