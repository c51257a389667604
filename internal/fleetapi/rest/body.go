package rest

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
)

// MaxBodyDepth is the maximum nesting depth of arrays and objects.
const MaxBodyDepth = 64

// ReadBody decodes the body into v. The body is one JSON value of at most limit bytes. Duplicate
// members are errors. Unknown members, including names in the wrong case, are errors in a PATCH and
// in a request with the parameter strict=true, and ignored otherwise.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, v any) *Error {
	types := []string{"application/json"}
	if r.Method == http.MethodPatch {
		types = append(types, "application/merge-patch+json")
	}
	if err := CheckContentType(r, types...); err != nil {
		return err
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return NewError(CodeBodyTooLarge, "the body is larger than %d bytes", tooLarge.Limit)
		}
		return NewError(CodeInvalidBody, "the fleet API could not read the whole body; send the request again")
	}
	strict, err := strconv.ParseBool(r.URL.Query().Get("strict"))
	return decodeJSON("the body", data, v, r.Method == http.MethodPatch || err == nil && strict)
}

// DecodeStrict decodes one JSON value into v and refuses unknown members. A refusal names the value
// by the text in the first argument, such as "the body".
func DecodeStrict(what string, data []byte, v any) *Error { return decodeJSON(what, data, v, true) }

func decodeJSON(what string, data []byte, v any, strict bool) *Error {
	if len(bytes.TrimSpace(data)) == 0 {
		return NewError(CodeInvalidBody, "%s is empty; send a JSON object", what)
	}
	if err := checkJSONDepth(what, data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v, json.RejectUnknownMembers(strict)); err != nil {
		return explainJSONError(what, err)
	}
	return nil
}

// CheckContentType requires one of the media types, or no type at all. A request without a type is
// refused if a browser sends it for a page of another site: such a request needs no preflight.
func CheckContentType(r *http.Request, types ...string) *Error {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return NewError(CodeUnsupportedMediaType, "content encoding %q is not supported; send the body without encoding", e)
	}
	given := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(given)
	if err == nil && slices.Contains(types, media) || given == "" && http.NewCrossOriginProtection().Check(r) == nil {
		return nil
	}
	return NewError(CodeUnsupportedMediaType, "content type %q is not supported; send %s", given, types[0])
}

func checkJSONDepth(what string, data []byte) *Error {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := d.ReadToken(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return explainJSONError(what, err)
		}
		if d.StackDepth() > MaxBodyDepth {
			return NewError(CodeInvalidBody, "%s is nested deeper than %d levels", what, MaxBodyDepth)
		}
	}
}

// explainJSONError converts a decoding error into a problem for the client.
func explainJSONError(what string, err error) *Error {
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return NewError(CodeInvalidBody, "%s occurs twice", formatJSONPointer(what, s.JSONPointer))
		}
		return NewError(CodeInvalidBody, "%s is not valid JSON at byte %d, near %s: %s", what, s.ByteOffset, formatJSONPointer(what, s.JSONPointer), jsonErrorReason(s.Err))
	}
	s, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return NewError(CodeInvalidBody, "%s is not valid JSON: it ends too early", what)
	}
	if errors.Is(err, json.ErrUnknownName) {
		return NewError(CodeInvalidBody, "%s is not a known field", formatJSONPointer(what, s.JSONPointer))
	}
	if s.Err != nil {
		return NewError(CodeInvalidBody, "%s is invalid: %s", formatJSONPointer(what, s.JSONPointer), jsonErrorReason(s.Err))
	}
	return NewError(CodeInvalidBody, "%s must not be %s", formatJSONPointer(what, s.JSONPointer), jsonKindName(s.JSONKind))
}

func jsonKindName(k jsontext.Kind) string {
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

func jsonErrorReason(err error) string { return strings.TrimPrefix(err.Error(), "jsontext: ") }

// formatJSONPointer names the place of an error.
func formatJSONPointer(what string, p jsontext.Pointer) string {
	if p == "" {
		return what
	}
	return "field " + string(p)
}
