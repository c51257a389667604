package httpserver

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

// A BearerToken is one token of a file, and its owner. Exactly one of Plain and SHA256, the hash of the
// token in hexadecimal, is set.
type BearerToken[Owner any] struct {
	Plain, SHA256 string
	// Subject is the owner's name in logs.
	Subject string
	Owner   Owner
	// Wrong is an error that the reader found in the owner, or nil.
	Wrong error
}

// A TokenHash is the hash of a token.
type TokenHash [sha256.Size]byte

// HashToken returns the hash of a token.
func HashToken(token string) TokenHash { return sha256.Sum256([]byte(token)) }

// validateAndHash returns the hash of a token, or why it is invalid.
func (t BearerToken[Owner]) validateAndHash() (TokenHash, error) {
	switch {
	case (t.Plain == "") == (t.SHA256 == ""):
		return TokenHash{}, errors.New("must have exactly one of token and sha256")
	case !IsValidSubjectOrTenant(t.Subject):
		return TokenHash{}, errors.New("subject must be 1 to 253 printable characters")
	case t.Wrong != nil:
		return TokenHash{}, t.Wrong
	case t.Plain != "":
		return HashToken(t.Plain), nil
	}
	raw, err := hex.DecodeString(t.SHA256)
	if err != nil || len(raw) != sha256.Size {
		return TokenHash{}, errors.New("sha256 must be 64 hexadecimal digits")
	}
	return TokenHash(raw), nil
}

// validateAndHashTokens returns the tokens in the form that lookups use. An error identifies the invalid token
// by its position and its subject.
func validateAndHashTokens[Owner any](tokens []BearerToken[Owner]) ([]knownToken[Owner], error) {
	out := make([]knownToken[Owner], 0, len(tokens))
	taken := make(map[TokenHash]bool, len(tokens))
	for i, t := range tokens {
		hash, err := t.validateAndHash()
		if err == nil && taken[hash] {
			err = errors.New("the token is listed twice")
		}
		if err != nil {
			return nil, fmt.Errorf("tokens[%d] (subject %q): %w", i, t.Subject, err)
		}
		taken[hash] = true
		out = append(out, knownToken[Owner]{hash, t.Owner})
	}
	return out, nil
}

// TokenFromHeader returns the token of an Authorization header, or "" if it has none.
func TokenFromHeader(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// IsValidSubjectOrTenant reports whether s can name a subject or a tenant: a short text that logs and databases
// can store.
func IsValidSubjectOrTenant(s string) bool {
	const longest = 253
	return s != "" && len(s) <= longest && utf8.ValidString(s) &&
		strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// IsLoopback reports whether an address of the form host:port is reachable only from its own machine.
// Only there may callers omit the token. An empty host means every interface.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// IsLoopbackHost reports whether the Host of a request, with or without a port, is localhost or a loopback address. A
// name of another web site may resolve to such an address (DNS rebinding).
func IsLoopbackHost(hostWithOptionalPort string) bool {
	host, _, err := net.SplitHostPort(hostWithOptionalPort)
	if err != nil {
		host = strings.Trim(hostWithOptionalPort, "[]")
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
