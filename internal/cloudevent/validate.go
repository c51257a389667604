package cloudevent

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A Mode is the layout of an event in a broker's message. The zero value means Structured.
type Mode string

// The two modes of the CloudEvents specification that a broker can carry.
const (
	// Structured puts the whole event, attributes and data, in the body.
	Structured Mode = "structured"
	// Binary puts the data in the body and the attributes in the headers.
	Binary Mode = "binary"
)

// Validate reports whether m is a mode, or empty.
func (m Mode) Validate() error {
	switch m {
	case "", Structured, Binary:
		return nil
	}
	return fmt.Errorf("event mode %q: want %q or %q", string(m), Structured, Binary)
}

// Validate returns why e cannot be sent: a missing required attribute, a text that the
// specification forbids (so that no line break ever reaches a broker's headers), or data that is
// not JSON.
func (e *Event) Validate() error {
	for _, a := range [...]struct{ name, value string }{{"id", e.ID}, {"source", e.Source}, {"type", e.Type}} {
		if strings.TrimSpace(a.value) == "" {
			return fmt.Errorf("%s is missing", a.name)
		}
	}
	for _, a := range [...]struct{ name, value string }{
		{"id", e.ID},
		{"source", e.Source},
		{"type", e.Type},
		{"subject", e.Subject},
		{"traceparent", e.TraceParent},
		{"tracestate", e.TraceState},
	} {
		if !isCloudEventsString(a.value) {
			return fmt.Errorf("%s %q contains a character that CloudEvents does not allow", a.name, a.value)
		}
	}
	if _, err := url.Parse(e.Source); err != nil {
		return fmt.Errorf("source %q is not a URI reference", e.Source)
	}
	if y := e.Time.UTC().Year(); y < 0 || y > 9999 {
		return fmt.Errorf("time has the year %d, which RFC 3339 does not support", y)
	}
	if len(e.Data) > 0 && !jsontext.Value(e.Data).IsValid() {
		return errors.New("data is not valid JSON")
	}
	return nil
}

// isCloudEventsString reports whether s is a string as CloudEvents defines it: Unicode
// without control characters and noncharacters.
func isCloudEventsString(s string) bool {
	for i, r := range s {
		switch {
		case r < 0x20, r >= 0x7f && r <= 0x9f:
			return false
		case r >= 0xfdd0 && r <= 0xfdef, r&0xfffe == 0xfffe:
			return false
		case r == utf8.RuneError:
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return false
			}
		}
	}
	return true
}
