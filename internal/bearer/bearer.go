// Package bearer knows callers by fixed bearer tokens: it takes the token out of
// a request's header and finds whose it is in a file.
//
// The file is read again when it changes. One that has gone or cannot be read
// leaves the tokens as they were, and the log says so: to lock everybody out is
// not what a slip in an editor should do. Neither errors nor the log hold a
// token, and how long it takes to find one tells nothing about the others.
//
// How a file is written is for its reader to say; what a token may be, and that
// it is there once, is said here.
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

// A Token is one token as a file has it, and whose it is. Of Plain and SHA256,
// the hash of the token in hexadecimal, exactly one is given.
type Token[Owner any] struct {
	Plain, SHA256 string
	// Subject is who has the token, as logs say it.
	Subject string
	Owner   Owner
	// Wrong is what the reader finds wrong with the owner, or nil.
	Wrong error
}

// A Hash is that of a token.
type Hash [sha256.Size]byte

// HashOf gives the hash of a token.
func HashOf(token string) Hash { return sha256.Sum256([]byte(token)) }

// hashToken gives the hash of a token, or says what is wrong with it.
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

// hashTokens gives the tokens by which callers are found: an error says which one
// cannot be taken, by its place and its subject.
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

// FromHeader gives the token of an Authorization header, or "" if it has none.
func FromHeader(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// ValidName reports whether s can name a subject or a tenant: something short
// that a log and a database can hold.
func ValidName(s string) bool {
	const longest = 253
	return s != "" && len(s) <= longest && utf8.ValidString(s) &&
		strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Loopback reports whether an address of the form host:port can be reached from
// its own machine only, where alone callers may do without a token. An empty
// host is every interface.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
