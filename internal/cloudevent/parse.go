package cloudevent

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// wire is the structured form of other senders. A null member counts as missing.
type wire struct {
	SpecVersion     string         `json:"specversion"`
	Type            string         `json:"type"`
	Source          string         `json:"source"`
	ID              string         `json:"id"`
	Time            string         `json:"time"`
	DataContentType string         `json:"datacontenttype"`
	Subject         string         `json:"subject"`
	TraceParent     string         `json:"traceparent"`
	TraceState      string         `json:"tracestate"`
	Data            jsontext.Value `json:"data"`
	DataBase64      *string        `json:"data_base64"`
}

// Parse parses an event in structured mode. It rejects events that are not CloudEvents 1.0, lack a
// required attribute or have data other than JSON; it ignores unknown extension attributes. The
// event shares no memory with b.
func Parse(b []byte) (Event, error) {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return Event{}, fmt.Errorf("parse CloudEvent: %w", err)
	}
	data, err := w.decodeData()
	if err != nil {
		return Event{}, fmt.Errorf("parse CloudEvent %q: %w", w.ID, err)
	}
	e := Event{
		ID: w.ID, Source: w.Source, Type: w.Type, Subject: w.Subject,
		Data: data, TraceParent: w.TraceParent, TraceState: w.TraceState,
	}
	return parseTimeAndValidate(e, w.SpecVersion, w.Time, w.DataContentType)
}

// FromAttributes returns an event in binary mode: the attributes from get, by their names without a
// prefix, and the data unchanged. The event keeps data.
func FromAttributes(get func(name string) (string, bool), data []byte) (Event, error) {
	attr := func(name string) string { v, _ := get(name); return v }
	e := Event{
		ID: attr("id"), Source: attr("source"), Type: attr("type"), Subject: attr("subject"),
		Data: nilIfNull(data), TraceParent: attr("traceparent"), TraceState: attr("tracestate"),
	}
	return parseTimeAndValidate(e, attr("specversion"), attr("time"), attr("datacontenttype"))
}

// Decode decodes an event from a message in either mode, which it detects by the content type. It
// reads attributes only in binary mode: in structured mode the body is the complete event.
func Decode(contentType string, get func(name string) (string, bool), body []byte) (Event, error) {
	const family = "application/cloudevents"
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	switch media = strings.TrimSpace(media); {
	case media == ContentType:
		return Parse(body)
	case strings.HasPrefix(media, family):
		return Event{}, fmt.Errorf("parse CloudEvent: the format %q is not supported, only %q is", contentType, ContentType)
	case !isJSONContentType(contentType):
		return Event{}, fmt.Errorf("parse CloudEvent: the content type %q is not JSON", contentType)
	}
	return FromAttributes(get, body)
}

// parseTimeAndValidate parses the remaining attributes and validates the event.
func parseTimeAndValidate(e Event, version, timeText, dataContentType string) (Event, error) {
	fail := func(format string, args ...any) (Event, error) {
		return Event{}, fmt.Errorf("parse CloudEvent %q: "+format, append([]any{e.ID}, args...)...)
	}
	if version != specVersion {
		return fail("specversion is %q, want %q", version, specVersion)
	}
	if !isJSONContentType(dataContentType) {
		return fail("datacontenttype is %q, want %q", dataContentType, DataContentType)
	}
	if timeText != "" {
		t, err := time.Parse(time.RFC3339Nano, timeText)
		if err != nil {
			return fail("time is %q, want an RFC 3339 time", timeText)
		}
		e.Time = t.UTC()
	}
	if err := e.Validate(); err != nil {
		return fail("%w", err)
	}
	return e, nil
}

func (w *wire) decodeData() ([]byte, error) {
	data := nilIfNull(w.Data)
	if w.DataBase64 == nil {
		return data, nil
	}
	if data != nil {
		return nil, errors.New("data and data_base64 are mutually exclusive")
	}
	data, err := base64.StdEncoding.DecodeString(*w.DataBase64)
	if err != nil {
		return nil, fmt.Errorf("decode data_base64: %w", err)
	}
	return nilIfNull(data), nil
}

// nilIfNull maps both forms of missing data to one, whatever the mode.
func nilIfNull(data []byte) []byte {
	if len(data) == 0 || string(data) == "null" {
		return nil
	}
	return data
}

// isJSONContentType reports whether data of this content type is JSON. A missing content type means JSON, as
// the specification requires for structured mode.
func isJSONContentType(contentType string) bool {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	media = strings.TrimSpace(media)
	return media == "" || media == DataContentType || media == "text/json" || strings.HasSuffix(media, "+json")
}
