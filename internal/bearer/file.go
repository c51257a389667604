package bearer

import (
	"context"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// A Reader reads the tokens of a file. Its errors contain no tokens.
type Reader[Owner any] func(path string) ([]Token[Owner], error)

// A known token is identified by its hash.
type known[Owner any] struct {
	hash  Hash
	owner Owner
}

// A File holds the current tokens of a file. It is safe for concurrent use.
type File[Owner any] struct {
	path string
	read Reader[Owner]
	log  *slog.Logger

	mu     sync.Mutex
	seen   os.FileInfo // nil while the file is missing
	tokens []known[Owner]
}

// Open reads a file, which must exist.
func Open[Owner any](path string, read Reader[Owner], log *slog.Logger) (*File[Owner], error) {
	f := &File[Owner]{path: path, read: read, log: log}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read token file: %w", err)
	}
	if f.tokens, err = f.loadTokens(); err != nil {
		return nil, err
	}
	f.seen = info
	return f, nil
}

// Lookup returns the owner of a token. It compares every known token, each in constant time.
func (f *File[Owner]) Lookup(ctx context.Context, hash Hash) (owner Owner, ok bool) {
	match := -1
	tokens := f.currentTokens(ctx)
	for i := range tokens {
		match = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], tokens[i].hash[:]), i, match)
	}
	if match < 0 {
		return owner, false
	}
	return tokens[match].owner, true
}

// currentTokens returns the tokens and reads the file again if it was written or replaced.
func (f *File[Owner]) currentTokens(ctx context.Context) []known[Owner] {
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
	if f.seen != nil && f.seen.ModTime().Equal(info.ModTime()) && f.seen.Size() == info.Size() && os.SameFile(f.seen, info) {
		return f.tokens
	}
	f.seen = info
	tokens, err := f.loadTokens()
	if err != nil {
		f.log.ErrorContext(ctx, "token file unreadable, keeping the last tokens", "path", f.path, "err", err)
		return f.tokens
	}
	f.log.InfoContext(ctx, "token file reloaded", "path", f.path, "tokens", len(tokens))
	f.tokens = tokens
	return f.tokens
}

func (f *File[Owner]) loadTokens() ([]known[Owner], error) {
	tokens, err := f.read(f.path)
	if err != nil {
		return nil, fmt.Errorf("read token file: %w", err)
	}
	out, err := hashTokens(tokens)
	if err != nil {
		return nil, fmt.Errorf("read token file %q: %w", f.path, err)
	}
	return out, nil
}
