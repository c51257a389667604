// Package paging records where a list was left. The place is in a token that the client sends back,
// or in memory for a client that only counts pages.
package paging

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
)

// A Digest identifies a query: two queries for the same rows in the same order have the same
// digest.
type Digest [sha256.Size]byte

// Digested returns the digest of the parts of a query.
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
	version   = 1  // an id
	timed     = 2  // a time and an id
	numbered  = 3  // a time and a number
	placed    = 4  // a place that only the caller can decode
	digestLen = 16 // of a Digest, enough to distinguish queries
	tokenLen  = 1 + 16 + digestLen
	timeLen   = 8
	numberLen = 8
)

// Token returns the token that continues a query after the row with the id, which is a UUID. Tokens
// do not expire; the row may no longer exist.
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

// ParseToken returns the id after which the query continues.
func ParseToken(query Digest, token string) (string, error) {
	b, err := decodeToken(query, token, version, tokenLen)
	if err != nil {
		return "", err
	}
	return uuid.UUID(b).String(), nil
}

// TimedToken returns the token that continues a query ordered by a time, which may be zero, and an
// id.
func TimedToken(query Digest, at time.Time, id string) (string, error) {
	u, err := uuid.Parse(id)
	if err != nil {
		return "", err
	}
	b := make([]byte, 0, tokenLen+timeLen)
	b = append(b, timed)
	b = append(b, u[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(at.UnixMicro()))
	b = append(b, query[:digestLen]...)
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// ParseTimedToken returns the time and the id after which the query continues. The time is zero or
// one that the database can hold.
func ParseTimedToken(query Digest, token string) (at time.Time, id string, err error) {
	b, err := decodeToken(query, token, timed, tokenLen+timeLen)
	if err != nil {
		return at, "", err
	}
	at = time.UnixMicro(int64(binary.BigEndian.Uint64(b[16:]))).UTC() //nolint:gosec // as it was put in
	if !at.IsZero() && (at.Year() < 1 || at.Year() > 9999) {
		return time.Time{}, "", ErrMalformed
	}
	return at, uuid.UUID(b[:16]).String(), nil
}

// NumberedToken returns the token that continues a query ordered by a time and a number.
func NumberedToken(query Digest, at time.Time, number int64) string {
	b := make([]byte, 0, 1+timeLen+numberLen+digestLen)
	b = append(b, numbered)
	b = binary.BigEndian.AppendUint64(b, uint64(at.UnixMicro()))
	b = binary.BigEndian.AppendUint64(b, uint64(number)) //nolint:gosec // read back as it was
	b = append(b, query[:digestLen]...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseNumberedToken returns the time and the number after which the query continues. The database
// can hold the time.
func ParseNumberedToken(query Digest, token string) (at time.Time, number int64, err error) {
	b, err := decodeToken(query, token, numbered, 1+timeLen+numberLen+digestLen)
	if err != nil {
		return at, 0, err
	}
	at = time.UnixMicro(int64(binary.BigEndian.Uint64(b))).UTC() //nolint:gosec // as it was put in
	if at.Year() < 1 || at.Year() > 9999 {
		return time.Time{}, 0, ErrMalformed
	}
	return at, int64(binary.BigEndian.Uint64(b[timeLen:])), nil //nolint:gosec // as it was put in
}

// PlaceToken returns the token that continues a query after a place, which the caller has encoded.
func PlaceToken(query Digest, place []byte) string {
	b := make([]byte, 0, 1+len(place)+digestLen)
	b = append(append(append(b, placed), place...), query[:digestLen]...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParsePlaceToken returns the place after which the query continues. The digest only distinguishes
// queries and authenticates nothing: the caller validates the bytes.
func ParsePlaceToken(query Digest, token string) ([]byte, error) {
	length := base64.RawURLEncoding.DecodedLen(len(token))
	if length < 1+digestLen {
		return nil, ErrMalformed
	}
	return decodeToken(query, token, placed, length)
}

// decodeToken returns the bytes between the version and the digest of a token.
func decodeToken(query Digest, token string, v byte, length int) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) != length || b[0] != v || strings.ContainsAny(token, "\r\n") {
		return nil, ErrMalformed
	}
	end := length - digestLen
	if subtle.ConstantTimeCompare(b[end:], query[:digestLen]) != 1 {
		return nil, ErrOtherQuery
	}
	return b[1:end], nil
}
