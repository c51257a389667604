package nats

import (
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
)

const (
	contentTypeHeader = "content-type"
	attributePrefix   = "ce-"
	// headersOfBinary is how many headers a message has at most.
	headersOfBinary = 10
	hexDigits       = "0123456789ABCDEF"
)

// escapeHeader writes s as the binding wants header values: what is not printable
// ASCII, and blank, quote and percent, as percent and two digits.
func escapeHeader(s string) string {
	plain := func(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }
	n := 0
	for i := range len(s) {
		if !plain(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	var out strings.Builder
	out.Grow(len(s) + 2*n)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			out.WriteByte(c)
		} else {
			out.WriteByte('%')
			out.WriteByte(hexDigits[c>>4])
			out.WriteByte(hexDigits[c&15])
		}
	}
	return out.String()
}

// unescapeHeader undoes escape. A value that others wrote without escaping stays
// what it is.
func unescapeHeader(s string) string {
	if out, err := url.PathUnescape(s); err == nil {
		return out
	}
	return s
}

// lookupHeader finds a header whatever its case: NATS keeps cases apart, those who
// write headers do not.
func lookupHeader(h nats.Header, name string) (string, bool) {
	if v := h[name]; len(v) > 0 {
		return v[0], true
	}
	for k, v := range h {
		if len(v) > 0 && strings.EqualFold(k, name) {
			return v[0], true
		}
	}
	return "", false
}
