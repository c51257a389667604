package cloudevent

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// ContentType marks a message whose body is a whole event, as AppendJSON
	// writes it.
	ContentType = "application/cloudevents+json"
	// DataContentType marks a message whose body is the event's data alone.
	DataContentType = "application/json"

	specVersion = "1.0"
)

// AppendJSON appends e in structured mode to dst, which it returns extended.
// It allocates only when dst is too small. It writes what it is given: an
// event that Validate refuses gives a text that Parse refuses.
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
	dst = append(dst, e.Body()...)
	return append(dst, '}')
}

// Body is the body of a message in binary mode: the data, or the JSON null
// that stands for no data.
func (e *Event) Body() []byte {
	if len(e.Data) == 0 {
		return []byte("null")
	}
	return e.Data
}

// Attributes yields the attributes that are set, named as in the
// specification and without a prefix, in the order of AppendJSON. It leaves
// out datacontenttype, which the protocol bindings carry as their own content
// type: DataContentType in binary mode.
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
	// The error tells of invalid UTF-8, which was replaced; Validate refuses it.
	dst, _ = jsontext.AppendQuote(append(dst, key...), value)
	return dst
}
