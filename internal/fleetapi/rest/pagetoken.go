package rest

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

// A QueryDigest identifies a query: two queries for the same rows in the same order have the same digest.
type QueryDigest [sha256.Size]byte

// DigestQuery returns the digest of the parts of a query.
func DigestQuery(parts ...string) QueryDigest {
	var b []byte
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return sha256.Sum256(b)
}

// Errors of a token.
var (
	ErrMalformedToken = errors.New("not a token of this API")
	ErrForeignToken   = errors.New("a token of another query")
)

// Versions of a token, and lengths of its parts.
const (
	idToken       = 1  // an id
	timedToken    = 2  // a time and an id
	numberedToken = 3  // a time and a number
	placeToken    = 4  // a place that only the caller can decode
	digestLen     = 16 // of a QueryDigest, enough to distinguish queries
	idTokenLen    = 1 + 16 + digestLen
	timeLen       = 8
	numberLen     = 8
)

// NewIDPageToken returns the token that continues a query after the row with the id, which is a UUID.
// Tokens do not expire; the row may no longer exist.
func NewIDPageToken(query QueryDigest, lastID string) (string, error) {
	u, err := uuid.Parse(lastID)
	if err != nil {
		return "", err
	}
	return encodePageToken(query, idToken, u[:]), nil
}

// ParseIDPageToken returns the id after which the query continues.
func ParseIDPageToken(query QueryDigest, token string) (lastID string, err error) {
	b, err := decodeAndVerifyPageToken(query, token, idToken, idTokenLen)
	if err != nil {
		return "", err
	}
	return uuid.UUID(b).String(), nil
}

// NewTimeAndIDPageToken returns the token that continues a query ordered by a time, which may be zero, and an id.
func NewTimeAndIDPageToken(query QueryDigest, lastTime time.Time, lastID string) (string, error) {
	u, err := uuid.Parse(lastID)
	if err != nil {
		return "", err
	}
	return encodePageToken(query, timedToken, binary.BigEndian.AppendUint64(u[:], uint64(lastTime.UnixMicro()))), nil
}

// ParseTimeAndIDPageToken returns the time and the id after which the query continues. The time is zero
// or one that the database can hold.
func ParseTimeAndIDPageToken(query QueryDigest, token string) (lastTime time.Time, lastID string, err error) {
	b, err := decodeAndVerifyPageToken(query, token, timedToken, idTokenLen+timeLen)
	if err != nil {
		return lastTime, "", err
	}
	lastTime = time.UnixMicro(int64(binary.BigEndian.Uint64(b[16:]))).UTC() //nolint:gosec // as it was put in
	if !lastTime.IsZero() && (lastTime.Year() < 1 || lastTime.Year() > 9999) {
		return time.Time{}, "", ErrMalformedToken
	}
	return lastTime, uuid.UUID(b[:16]).String(), nil
}

// NewTimeAndNumberPageToken returns the token that continues a query ordered by a time and a number.
func NewTimeAndNumberPageToken(query QueryDigest, lastTime time.Time, lastNumber int64) string {
	payload := binary.BigEndian.AppendUint64(nil, uint64(lastTime.UnixMicro()))
	payload = binary.BigEndian.AppendUint64(payload, uint64(lastNumber)) //nolint:gosec // read back as it was
	return encodePageToken(query, numberedToken, payload)
}

// ParseTimeAndNumberPageToken returns the time and the number after which the query continues. The
// database can hold the time.
func ParseTimeAndNumberPageToken(query QueryDigest, token string) (lastTime time.Time, lastNumber int64, err error) {
	b, err := decodeAndVerifyPageToken(query, token, numberedToken, 1+timeLen+numberLen+digestLen)
	if err != nil {
		return lastTime, 0, err
	}
	lastTime = time.UnixMicro(int64(binary.BigEndian.Uint64(b))).UTC() //nolint:gosec // as it was put in
	if lastTime.Year() < 1 || lastTime.Year() > 9999 {
		return time.Time{}, 0, ErrMalformedToken
	}
	return lastTime, int64(binary.BigEndian.Uint64(b[timeLen:])), nil //nolint:gosec // as it was put in
}

// NewEncodedPositionPageToken returns the token that continues a query after a place, which the caller has encoded.
func NewEncodedPositionPageToken(query QueryDigest, position []byte) string {
	return encodePageToken(query, placeToken, position)
}

// ParseEncodedPositionPageToken returns the place after which the query continues. The digest only
// distinguishes queries and authenticates nothing: the caller validates the bytes.
func ParseEncodedPositionPageToken(query QueryDigest, token string) (position []byte, err error) {
	length := base64.RawURLEncoding.DecodedLen(len(token))
	if length < 1+digestLen {
		return nil, ErrMalformedToken
	}
	return decodeAndVerifyPageToken(query, token, placeToken, length)
}

func encodePageToken(query QueryDigest, version byte, payload []byte) string {
	b := append([]byte{version}, payload...)
	return base64.RawURLEncoding.EncodeToString(append(b, query[:digestLen]...))
}

// decodeAndVerifyPageToken returns the bytes between the version and the digest of a token.
func decodeAndVerifyPageToken(query QueryDigest, token string, version byte, length int) (payload []byte, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) != length || b[0] != version || strings.ContainsAny(token, "\r\n") {
		return nil, ErrMalformedToken
	}
	end := length - digestLen
	if subtle.ConstantTimeCompare(b[end:], query[:digestLen]) != 1 {
		return nil, ErrForeignToken
	}
	return b[1:end], nil
}
