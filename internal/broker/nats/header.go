package nats

import (
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
)

const (
	contentTypeHeader = "content-type"
	attributePrefix   = "ce-"
	// headersOfBinary is the maximum number of headers of a message.
	headersOfBinary = 10
	hexDigits       = "0123456789ABCDEF"
)

// escapeHeader escapes s as the binding requires for header values. Everything but printable ASCII,
// and blank, quote and percent, becomes percent and two digits.
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

// unescapeHeader reverses escapeHeader. A value that other clients wrote without escaping stays
// unchanged.
func unescapeHeader(s string) string {
	if out, err := url.PathUnescape(s); err == nil {
		return out
	}
	return s
}

// findHeaderIgnoringCase finds a header in any case: NATS distinguishes cases, but its clients do not.
func findHeaderIgnoringCase(h nats.Header, name string) (value string, found bool) {
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
