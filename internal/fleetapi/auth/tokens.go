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
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/settings"
)

// A tokenList is what a token file holds.
type tokenList struct {
	Tokens []entry `key:"tokens" validate:"dive" doc:"The tokens that are taken."`
}

// An entry is one token. Of Token and SHA256, the hexadecimal hash of the
// token, exactly one is given.
type entry struct {
	Token   settings.Secret `key:"token" doc:"The token."`
	SHA256  string          `key:"sha256" doc:"SHA-256 of the token in hexadecimal, so that the file holds no secret."`
	Subject string          `key:"subject" validate:"required" doc:"Who has the token, as created_by and the log say it."`
	Tenant  string          `key:"tenant" doc:"Tenant whose rows the subject sees; may be empty for the role system."`
	Roles   []Role          `key:"roles" validate:"dive,oneof=system" doc:"Roles of the subject; there is only system."`
}

type known struct {
	hash      [sha256.Size]byte
	principal Principal
}

// A tokenFile is the fixed tokens, as the file has them now.
type tokenFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	seen   stamp
	tokens []known
}

// A stamp tells whether a file was written or replaced.
type stamp struct {
	modified time.Time
	size     int64
	inode    os.FileInfo
}

func (s stamp) same(info os.FileInfo) bool {
	return s.inode != nil && s.modified.Equal(info.ModTime()) && s.size == info.Size() && os.SameFile(s.inode, info)
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
	f.seen = stamp{info.ModTime(), info.Size(), info}
	return f, nil
}

// lookup finds who has the token. Every known token is compared, each in
// constant time, so that the answer's time tells nothing about them.
func (f *tokenFile) lookup(ctx context.Context, token string) (Principal, bool) {
	hash := sha256.Sum256([]byte(token))
	match := -1
	tokens := f.current(ctx)
	for i := range tokens {
		match = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], tokens[i].hash[:]), i, match)
	}
	if match < 0 {
		return Principal{}, false
	}
	return tokens[match].principal, true
}

// current gives the tokens and reads the file again if it changed. A file
// that has become unreadable leaves the tokens as they were: to lock everybody
// out is not what a slip in an editor should do.
func (f *tokenFile) current(ctx context.Context) []known {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		if f.seen.inode != nil {
			f.log.ErrorContext(ctx, "token file is gone, the last tokens stay valid", "path", f.path, "err", err)
			f.seen = stamp{}
		}
		return f.tokens
	}
	if f.seen.same(info) {
		return f.tokens
	}
	f.seen = stamp{info.ModTime(), info.Size(), info}
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
	tokens := make([]known, 0, len(list.Tokens))
	taken := make(map[[sha256.Size]byte]bool, len(list.Tokens))
	for i, e := range list.Tokens {
		hash, err := e.hash()
		if err == nil {
			err = e.check()
		}
		if err == nil && taken[hash] {
			err = errors.New("the token is in the list already")
		}
		if err != nil {
			return nil, fmt.Errorf("read token file %q: tokens[%d] (subject %q): %w", path, i, e.Subject, err)
		}
		taken[hash] = true
		tokens = append(tokens, known{hash, Principal{Subject: e.Subject, Tenant: e.Tenant, Roles: e.Roles}})
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

func (e entry) check() error {
	if !validText(e.Subject) {
		return errors.New("subject must be 1 to 253 printable characters")
	}
	switch {
	case e.Tenant == "" && len(e.Roles) == 0:
		return fmt.Errorf("needs a tenant, or the role %q", System)
	case e.Tenant != "" && !validText(e.Tenant):
		return errors.New("tenant must be 1 to 253 printable characters")
	}
	return nil
}
