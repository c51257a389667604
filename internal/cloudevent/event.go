// Package cloudevent holds the envelope of the sentinel's announcements, as CloudEvents 1.0 defines
// it, and its encodings.
//
// The encoder appends to a buffer and allocates nothing; the CloudEvents SDK is its oracle in tests
// and is not linked into any binary.
package cloudevent

import "time"

// An Event is one CloudEvent with JSON data.
type Event struct {
	// ID is the same for a resend of the same event, and only then.
	ID     string
	Source string
	Type   string
	// Subject is optional.
	Subject string
	Time    time.Time
	// Data is a JSON value; empty means null.
	Data []byte
	// TraceParent and TraceState are the distributed tracing extension.
	// Empty means that the event was not traced.
	TraceParent string
	TraceState  string
}
