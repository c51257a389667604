// Package bearer authenticates callers by fixed bearer tokens: it takes the token out of a
// request's header and finds its owner in a file.
//
// The file is read again when it changes. If the file is missing or unreadable, the last tokens
// stay valid and a message is logged, because an editing mistake must not lock out all callers.
// Errors and logs never contain a token, and the time of a lookup reveals nothing about other
// tokens.
//
// The format of the file is up to its reader. This package defines valid tokens, and rejects
// duplicates.
package bearer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Token is one token of a file, and its owner. Exactly one of Plain and SHA256, the hash of the
// token in hexadecimal, is set.
type Token[Owner any] struct {
	Plain, SHA256 string
	// Subject is the owner's name in logs.
	Subject string
	Owner   Owner
	// Wrong is an error that the reader found in the owner, or nil.
	Wrong error
}

// A Hash is the hash of a token.
type Hash [sha256.Size]byte

// HashOf returns the hash of a token.
func HashOf(token string) Hash { return sha256.Sum256([]byte(token)) }

// hashToken returns the hash of a token, or why it is invalid.
func (t Token[Owner]) hashToken() (Hash, error) {
	switch {
	case (t.Plain == "") == (t.SHA256 == ""):
		return Hash{}, errors.New("must have exactly one of token and sha256")
	case !ValidName(t.Subject):
		return Hash{}, errors.New("subject must be 1 to 253 printable characters")
	case t.Wrong != nil:
		return Hash{}, t.Wrong
	case t.Plain != "":
		return HashOf(t.Plain), nil
	}
	raw, err := hex.DecodeString(t.SHA256)
	if err != nil || len(raw) != sha256.Size {
		return Hash{}, errors.New("sha256 must be 64 hexadecimal digits")
	}
	return Hash(raw), nil
}

// hashTokens returns the tokens in the form that lookups use. An error identifies the invalid token
// by its position and its subject.
func hashTokens[Owner any](tokens []Token[Owner]) ([]known[Owner], error) {
	out := make([]known[Owner], 0, len(tokens))
	taken := make(map[Hash]bool, len(tokens))
	for i, t := range tokens {
		hash, err := t.hashToken()
		if err == nil && taken[hash] {
			err = errors.New("the token is listed twice")
		}
		if err != nil {
			return nil, fmt.Errorf("tokens[%d] (subject %q): %w", i, t.Subject, err)
		}
		taken[hash] = true
		out = append(out, known[Owner]{hash, t.Owner})
	}
	return out, nil
}

// FromHeader returns the token of an Authorization header, or "" if it has none.
func FromHeader(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// ValidName reports whether s can name a subject or a tenant: a short text that logs and databases
// can store.
func ValidName(s string) bool {
	const longest = 253
	return s != "" && len(s) <= longest && utf8.ValidString(s) &&
		strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Loopback reports whether an address of the form host:port is reachable only from its own machine.
// Only there may callers omit the token. An empty host means every interface.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
