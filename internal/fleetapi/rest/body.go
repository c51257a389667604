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

// DecodeJSONBody decodes the body of a request. It is one JSON value of at most maxBytes bytes. Duplicate
// members are errors. Unknown members, including names in the wrong case, are errors in a PATCH and
// in a request with the parameter strict=true, and ignored otherwise.
func DecodeJSONBody(w http.ResponseWriter, r *http.Request, maxBytes int64, into any) *Error {
	types := []string{"application/json"}
	if r.Method == http.MethodPatch {
		types = append(types, "application/merge-patch+json")
	}
	if err := CheckContentType(r, types...); err != nil {
		return err
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return NewError(CodeBodyTooLarge, "the body is larger than %d bytes", tooLarge.Limit)
		}
		return NewError(CodeInvalidBody, "the fleet API could not read the whole body; send the request again")
	}
	strict, err := strconv.ParseBool(r.URL.Query().Get("strict"))
	return decodeJSONWithinDepth("the body", data, into, r.Method == http.MethodPatch || err == nil && strict)
}

// DecodeStrictJSON decodes one JSON value and refuses unknown members. A refusal names the value
// by its subject, such as "the body".
func DecodeStrictJSON(subject string, data []byte, into any) *Error {
	return decodeJSONWithinDepth(subject, data, into, true)
}

func decodeJSONWithinDepth(subject string, data []byte, into any, rejectUnknown bool) *Error {
	if len(bytes.TrimSpace(data)) == 0 {
		return NewError(CodeInvalidBody, "%s is empty; send a JSON object", subject)
	}
	if err := checkJSONDepth(subject, data); err != nil {
		return err
	}
	if err := json.Unmarshal(data, into, json.RejectUnknownMembers(rejectUnknown)); err != nil {
		return toBodyProblem(subject, err)
	}
	return nil
}

// CheckContentType requires one of the media types, or no type at all. A request without a type is
// refused if a browser sends it for a page of another site: such a request needs no preflight.
func CheckContentType(r *http.Request, allowed ...string) *Error {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return NewError(CodeUnsupportedMediaType, "content encoding %q is not supported; send the body without encoding", e)
	}
	given := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(given)
	if err == nil && slices.Contains(allowed, media) || given == "" && http.NewCrossOriginProtection().Check(r) == nil {
		return nil
	}
	return NewError(CodeUnsupportedMediaType, "content type %q is not supported; send %s", given, allowed[0])
}

func checkJSONDepth(subject string, data []byte) *Error {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := d.ReadToken(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return toBodyProblem(subject, err)
		}
		if d.StackDepth() > MaxBodyDepth {
			return NewError(CodeInvalidBody, "%s is nested deeper than %d levels", subject, MaxBodyDepth)
		}
	}
}

func toBodyProblem(subject string, err error) *Error {
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return NewError(CodeInvalidBody, "%s occurs twice", describeJSONLocation(subject, s.JSONPointer))
		}
		return NewError(
			CodeInvalidBody,
			"%s is not valid JSON at byte %d, near %s: %s",
			subject,
			s.ByteOffset,
			describeJSONLocation(subject, s.JSONPointer),
			trimJSONErrorPrefix(s.Err),
		)
	}
	s, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return NewError(CodeInvalidBody, "%s is not valid JSON: it ends too early", subject)
	}
	if errors.Is(err, json.ErrUnknownName) {
		return NewError(CodeInvalidBody, "%s is not a known field", describeJSONLocation(subject, s.JSONPointer))
	}
	if s.Err != nil {
		return NewError(CodeInvalidBody, "%s is invalid: %s", describeJSONLocation(subject, s.JSONPointer), trimJSONErrorPrefix(s.Err))
	}
	return NewError(CodeInvalidBody, "%s must not be %s", describeJSONLocation(subject, s.JSONPointer), describeJSONKind(s.JSONKind))
}

func describeJSONKind(kind jsontext.Kind) string {
	switch kind {
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

func trimJSONErrorPrefix(err error) string { return strings.TrimPrefix(err.Error(), "jsontext: ") }

func describeJSONLocation(subject string, pointer jsontext.Pointer) string {
	if pointer == "" {
		return subject
	}
	return "field " + string(pointer)
}
