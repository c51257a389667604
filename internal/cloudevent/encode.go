package cloudevent

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// ContentType is the type of a message whose body is a whole event, as AppendJSON writes it.
	ContentType = "application/cloudevents+json"
	// DataContentType is the type of a message whose body is only the event's data.
	DataContentType = "application/json"

	specVersion = "1.0"
)

// AppendJSON appends e in structured mode to dst, and returns the extended slice. It allocates only
// if dst is too small. It does not validate: Parse rejects the output for an event that Validate
// rejects.
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"specversion":"`+specVersion+`"`...)
	dst = appendMember(dst, `,"type":`, e.Type)
	dst = appendMember(dst, `,"source":`, e.Source)
	dst = appendMember(dst, `,"id":`, e.ID)
	if !e.Time.IsZero() {
		dst = append(dst, `,"time":"`...)
		dst = e.Time.UTC().AppendFormat(dst, time.RFC3339Nano)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"datacontenttype":"`+DataContentType+`"`...)
	dst = appendOptional(dst, `,"subject":`, e.Subject)
	dst = appendOptional(dst, `,"traceparent":`, e.TraceParent)
	dst = appendOptional(dst, `,"tracestate":`, e.TraceState)
	dst = append(dst, `,"data":`...)
	dst = append(dst, e.DataOrNull()...)
	return append(dst, '}')
}

// DataOrNull returns the body of a message in binary mode: the data, or JSON null if the event has no
// data.
func (e *Event) DataOrNull() []byte {
	if len(e.Data) == 0 {
		return []byte("null")
	}
	return e.Data
}

// Attributes yields the attributes that are set, with their names in the specification and without
// a prefix, in the order of AppendJSON. It omits datacontenttype, which the protocol bindings send
// as their content type: DataContentType in binary mode.
func (e *Event) Attributes(yield func(name, value string) bool) {
	if !yield("specversion", specVersion) || !yield("type", e.Type) || !yield("source", e.Source) || !yield("id", e.ID) {
		return
	}
	if !e.Time.IsZero() && !yield("time", e.Time.UTC().Format(time.RFC3339Nano)) {
		return
	}
	if e.Subject != "" && !yield("subject", e.Subject) {
		return
	}
	if e.TraceParent != "" && !yield("traceparent", e.TraceParent) {
		return
	}
	if e.TraceState != "" {
		yield("tracestate", e.TraceState)
	}
}

func appendOptional(dst []byte, key, value string) []byte {
	if value == "" {
		return dst
	}
	return appendMember(dst, key, value)
}

func appendMember(dst []byte, key, value string) []byte {
	// The error only reports invalid UTF-8, which was replaced and which Validate rejects.
	dst, _ = jsontext.AppendQuote(append(dst, key...), value)
	return dst
}
