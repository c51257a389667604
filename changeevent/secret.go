package changeevent

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is the text that replaces a Secret.
const redacted = "***"

// A Secret is a string that is printed, logged and marshalled as "***". The zero
// value is printed as the empty string, so that a missing secret is visible.
type Secret string

// Reveal returns the secret.
func (s Secret) Reveal() string { return string(s) }

// String returns "***", or the empty string for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString returns the same as String, in quotes.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// Format redacts the secret for every verb.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'q' || f.Flag('#') {
		text = s.GoString()
	}
	_, _ = io.WriteString(f, text) // fmt.State cannot report the error
}

// LogValue redacts the secret in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText redacts the secret in JSON and other text formats. The result cannot
// be unmarshalled to the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
