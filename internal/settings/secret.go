package settings

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted replaces the text of a Secret.
const redacted = "***"

// A Secret is a text that is never shown: printing, logging and marshalling it produces "***". Only
// Reveal returns the text. The zero value is no secret, and is shown as the empty text, so that a
// missing secret is visible.
//
// It cannot prevent one leak: fmt prints the unexported fields of a struct without calling their
// methods, so a struct with a Secret in an unexported field must not be printed as a whole.
type Secret string

// Reveal returns the text.
func (s Secret) Reveal() string { return string(s) }

// String returns "***", or the empty text for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString returns the same as String, in quotes.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// Format redacts for every verb: for a verb that strings do not support, fmt would print the value
// without calling String.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'q' || f.Flag('#') {
		text = s.GoString()
	}
	_, _ = io.WriteString(f, text) // fmt.State cannot report the error
}

// LogValue redacts the secret in logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText redacts the secret in JSON and in all other text encodings. The output cannot be read
// back.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML redacts the secret in YAML.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }
