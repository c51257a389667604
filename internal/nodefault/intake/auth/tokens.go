package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"unicode"

	"github.com/fleetloop/fleetloop/internal/settings"
)

// A tokenList is what a token file holds.
type tokenList struct {
	Tokens []entry `key:"tokens" validate:"dive" doc:"The tokens that are taken."`
}

// An entry is one token. Of Token and SHA256 exactly one is given.
type entry struct {
	Token   settings.Secret `key:"token" doc:"The token."`
	SHA256  string          `key:"sha256" doc:"SHA-256 of the token in hexadecimal, so that the file holds no secret."`
	Subject string          `key:"subject" validate:"required" doc:"Who has the token, as the log says it."`
}

type known struct {
	hash    [sha256.Size]byte
	subject string
}

// A tokenFile is the fixed tokens, as the file has them now.
type tokenFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	seen   os.FileInfo // nil while the file is gone
	tokens []known
}

func openTokenFile(path string, log *slog.Logger) (*tokenFile, error) {
	f := &tokenFile{path: path, log: log}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read token file: %w", err)
	}
	if f.tokens, err = readTokens(path); err != nil {
		return nil, err
	}
	f.seen = info
	return f, nil
}

// lookup finds who has the token. All are compared, each in constant time, so
// that how long it takes tells nothing about them.
func (f *tokenFile) lookup(ctx context.Context, hash [sha256.Size]byte) (string, bool) {
	match := -1
	tokens := f.current(ctx)
	for i := range tokens {
		match = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], tokens[i].hash[:]), i, match)
	}
	if match < 0 {
		return "", false
	}
	return tokens[match].subject, true
}

// current gives the tokens and reads the file again if it changed. A file that
// cannot be read leaves them as they were.
func (f *tokenFile) current(ctx context.Context) []known {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		if f.seen != nil {
			f.log.ErrorContext(ctx, "token file is gone, the last tokens stay valid", "path", f.path, "err", err)
			f.seen = nil
		}
		return f.tokens
	}
	if f.seen != nil && f.seen.ModTime().Equal(info.ModTime()) && f.seen.Size() == info.Size() && os.SameFile(f.seen, info) {
		return f.tokens
	}
	f.seen = info
	tokens, err := readTokens(f.path)
	if err != nil {
		f.log.ErrorContext(ctx, "token file is not readable, the last tokens stay valid", "path", f.path, "err", err)
		return f.tokens
	}
	f.log.InfoContext(ctx, "token file read again", "path", f.path, "tokens", len(tokens))
	f.tokens = tokens
	return f.tokens
}

// readTokens reads a token file. Errors never hold a token.
func readTokens(path string) ([]known, error) {
	var list tokenList
	if _, err := settings.Load(&list, settings.Source{File: path}); err != nil {
		return nil, fmt.Errorf("read token file: %w", err)
	}
	var tokens []known
	taken := map[[sha256.Size]byte]bool{}
	for i, e := range list.Tokens {
		hash, err := e.hash()
		if err == nil && taken[hash] {
			err = errors.New("the token is in the list already")
		}
		if err == nil && strings.IndexFunc(e.Subject, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			err = errors.New("subject must be printable characters")
		}
		if err != nil {
			return nil, fmt.Errorf("read token file %q: tokens[%d] (subject %q): %w", path, i, e.Subject, err)
		}
		taken[hash] = true
		tokens = append(tokens, known{hash, e.Subject})
	}
	return tokens, nil
}

func (e entry) hash() (sum [sha256.Size]byte, err error) {
	switch {
	case (e.Token == "") == (e.SHA256 == ""):
		return sum, errors.New("needs token or sha256, one of them")
	case e.Token != "":
		return sha256.Sum256([]byte(e.Token.Reveal())), nil
	}
	raw, err := hex.DecodeString(e.SHA256)
	if err != nil || len(raw) != sha256.Size {
		return sum, errors.New("sha256 must be 64 hexadecimal digits")
	}
	return [sha256.Size]byte(raw), nil
}
