// Package paging remembers where a list was left: in a token that the client
// hands back, or, for a client that only counts pages, on its behalf.
package paging

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/google/uuid"
)

// A Digest stands for a query: two queries that ask for the same rows in the
// same order have the same one.
type Digest [sha256.Size]byte

// Digested makes the digest of what a query consists of.
func Digested(parts ...string) Digest {
	var d Digest
	var b []byte
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	d = sha256.Sum256(b)
	return d
}

// Errors of a token.
var (
	ErrMalformed  = errors.New("not a token of this API")
	ErrOtherQuery = errors.New("a token of another query")
)

const (
	version   = 1
	digestLen = 16 // of a Digest, enough to tell queries apart
	tokenLen  = 1 + 16 + digestLen
)

// Token makes the token that continues a query behind the row with the id,
// which is a UUID. Tokens do not age: the row may be gone by then.
func Token(query Digest, id string) (string, error) {
	u, err := uuid.Parse(id)
	if err != nil {
		return "", err
	}
	b := make([]byte, 0, tokenLen)
	b = append(b, version)
	b = append(b, u[:]...)
	b = append(b, query[:digestLen]...)
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// ParseToken gives the id behind which the query continues.
func ParseToken(query Digest, token string) (string, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) != tokenLen || b[0] != version || strings.ContainsAny(token, "\r\n") {
		return "", ErrMalformed
	}
	if subtle.ConstantTimeCompare(b[17:], query[:digestLen]) != 1 {
		return "", ErrOtherQuery
	}
	return uuid.UUID(b[1:17]).String(), nil
}
