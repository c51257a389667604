package changeevent

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is what a Secret shows of itself.
const redacted = "***"

// A Secret is a text that is not shown: however it is printed, logged or
// marshalled, "***" comes out. The zero value is no secret, and shows as the
// empty text, so that one can see that it is missing.
type Secret string

// Reveal gives the text itself.
func (s Secret) Reveal() string { return string(s) }

// String gives "***", or the empty text if there is no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString gives the same as String, in quotes.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// Format redacts whatever the verb: for one that a string does not know, fmt
// would print the value past String.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'q' || f.Flag('#') {
		text = s.GoString()
	}
	_, _ = io.WriteString(f, text) // fmt.State has nowhere to report it
}

// LogValue redacts the secret in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText redacts the secret in JSON and in everything else that asks for
// a text. What is marshalled cannot be read back.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
