package httpserver

import (
	"context"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// A TokenReader reads the tokens of a file. Its errors contain no tokens.
type TokenReader[Owner any] func(path string) ([]BearerToken[Owner], error)

// A knownToken is a token, identified by its hash.
type knownToken[Owner any] struct {
	hash  TokenHash
	owner Owner
}

// A TokenFile holds the current bearer tokens of a file, by which callers are authenticated. It is
// safe for concurrent use.
//
// The file is read again when it changes. If the file is missing or unreadable, the last tokens
// stay valid and a message is logged, because an editing mistake must not lock out all callers.
// Errors and logs never contain a token, and the time of a lookup reveals nothing about other
// tokens.
//
// The format of the file is up to its reader. OpenTokenFile rejects invalid and duplicate tokens.
type TokenFile[Owner any] struct {
	path string
	read TokenReader[Owner]
	log  *slog.Logger

	mu     sync.Mutex
	seen   os.FileInfo // nil while the file is missing
	tokens []knownToken[Owner]
}

// OpenTokenFile reads a file, which must exist.
func OpenTokenFile[Owner any](path string, read TokenReader[Owner], log *slog.Logger) (*TokenFile[Owner], error) {
	f := &TokenFile[Owner]{path: path, read: read, log: log}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read token file: %w", err)
	}
	if f.tokens, err = f.readAndHashTokens(); err != nil {
		return nil, err
	}
	f.seen = info
	return f, nil
}

// Lookup returns the owner of a token. It compares every known token, each in constant time.
func (f *TokenFile[Owner]) Lookup(ctx context.Context, hash TokenHash) (owner Owner, ok bool) {
	match := -1
	tokens := f.reloadTokensIfChanged(ctx)
	for i := range tokens {
		match = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], tokens[i].hash[:]), i, match)
	}
	if match < 0 {
		return owner, false
	}
	return tokens[match].owner, true
}

// reloadTokensIfChanged returns the tokens and reads the file again if it was written or replaced.
func (f *TokenFile[Owner]) reloadTokensIfChanged(ctx context.Context) []knownToken[Owner] {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		if f.seen != nil {
			f.log.ErrorContext(ctx, "token file deleted, keeping the last tokens", "path", f.path, "err", err)
			f.seen = nil
		}
		return f.tokens
	}
	unchanged := f.seen != nil && f.seen.ModTime().Equal(info.ModTime()) && f.seen.Size() == info.Size() && os.SameFile(f.seen, info)
	if unchanged {
		return f.tokens
	}
	f.seen = info
	tokens, err := f.readAndHashTokens()
	if err != nil {
		f.log.ErrorContext(ctx, "token file unreadable, keeping the last tokens", "path", f.path, "err", err)
		return f.tokens
	}
	f.log.InfoContext(ctx, "token file reloaded", "path", f.path, "tokens", len(tokens))
	f.tokens = tokens
	return f.tokens
}

func (f *TokenFile[Owner]) readAndHashTokens() ([]knownToken[Owner], error) {
	tokens, err := f.read(f.path)
	if err != nil {
		return nil, fmt.Errorf("read token file: %w", err)
	}
	out, err := validateAndHashTokens(tokens)
	if err != nil {
		return nil, fmt.Errorf("read token file %q: %w", f.path, err)
	}
	return out, nil
}
