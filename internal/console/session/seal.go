package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// keySize is the size of a key in bytes.
const keySize = 32

// A Key encrypts sessions.
type Key [keySize]byte

// NewRandomKey returns a random key.
func NewRandomKey() (key Key) {
	_, _ = rand.Read(key[:]) // never fails
	return key
}

var errKey = errors.New("the session key must be 32 random bytes in base64, such as the output of: openssl rand -base64 32")

// ParseBase64Key parses a key in base64. Its errors do not contain the text.
func ParseBase64Key(text string) (Key, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(raw) != keySize {
		return Key{}, errKey
	}
	return Key(raw), nil
}

// A sessionCipher encrypts sessions. The hash of a session is authenticated with it, so that the contents of
// one session cannot be stored as another's.
type sessionCipher struct {
	aead    cipher.AEAD
	csrfKey []byte
}

func newSessionCipher(key Key) sessionCipher {
	block, err := aes.NewCipher(deriveKey(key, "fleetloop console session"))
	if err != nil {
		panic(fmt.Sprintf("create the cipher of sessions: %v", err)) // fails only for another size of key
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(fmt.Sprintf("create the cipher of sessions: %v", err)) // fails only for another cipher
	}
	return sessionCipher{aead: aead, csrfKey: deriveKey(key, "fleetloop console csrf")}
}

func deriveKey(master Key, purpose string) []byte {
	out, err := hkdf.Key(sha256.New, master[:], nil, purpose, keySize)
	if err != nil {
		panic(fmt.Sprintf("derive a key: %v", err)) // fails only for a longer key
	}
	return out
}

// sealed is the content of a stored session. Its expiry stands beside it.
type sealed struct {
	User   User   `json:"user"`
	Tokens Tokens `json:"tokens"`
	Until  int64  `json:"until"`
}

func (s sessionCipher) encryptSession(idHash Hash, session Session) ([]byte, error) {
	text, err := json.Marshal(sealed{session.User, session.Tokens, session.Expires.UnixMilli()})
	if err != nil {
		return nil, fmt.Errorf("encode session: %w", err)
	}
	return s.aead.Seal(nil, nil, text, idHash[:]), nil
}

func (s sessionCipher) decryptSession(idHash Hash, ciphertext []byte) (Session, error) {
	plain, err := s.aead.Open(nil, nil, ciphertext, idHash[:])
	if err != nil {
		return Session{}, fmt.Errorf("decrypt session: %w", err)
	}
	var c sealed
	if err := json.Unmarshal(plain, &c); err != nil {
		return Session{}, fmt.Errorf("decode session: %w", err)
	}
	return Session{c.User, c.Tokens, time.UnixMilli(c.Until).UTC()}, nil
}
