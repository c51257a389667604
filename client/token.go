package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// A TokenSource supplies the bearer token of each request. It must be safe for concurrent use.
type TokenSource interface {
	// Token returns the current token; empty means an anonymous request. If the server rejected a
	// token, rejected is that token, and the request is sent again if another one is returned.
	Token(ctx context.Context, rejected string) (string, error)
}

// A TokenFunc is a function that implements TokenSource.
type TokenFunc func(ctx context.Context, rejected string) (string, error)

// Token calls f.
func (f TokenFunc) Token(ctx context.Context, rejected string) (string, error) {
	return f(ctx, rejected)
}

// StaticToken returns the source of one token. Empty means anonymous requests.
func StaticToken(token string) TokenSource { return staticToken(strings.TrimSpace(token)) }

// FileToken returns the source of the token in a file. It reads the file again when it changes, so
// a token that is rotated in place needs no restart. If the file is missing or empty, as happens
// while a token is being replaced, the last token stays in force.
func FileToken(path string) TokenSource { return &fileToken{path: path} }

type staticToken string

func (t staticToken) Token(context.Context, string) (string, error) { return string(t), nil }

// String keeps the token out of logs that print a Config.
func (t staticToken) String() string { return "[redacted]" }

// GoString does the same for %#v.
func (t staticToken) GoString() string { return t.String() }

func (t staticToken) check() error { return checkToken(string(t)) }

type fileToken struct {
	path string

	mu    sync.Mutex
	token string
	seen  fs.FileInfo // of the file when it was read; nil forces a read
}

func (t *fileToken) Token(_ context.Context, rejected string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// After a rejection the file is read without checking for changes: it may be rewritten in place
	// within the resolution of its time, with the same length.
	if rejected == "" && !t.hasFileChanged() {
		return t.token, nil
	}
	if err := t.reloadToken(); err != nil && t.token == "" {
		return "", err
	}
	return t.token, nil
}

func (t *fileToken) String() string { return "token in " + t.path }

// GoString keeps the token out of %#v.
func (t *fileToken) GoString() string { return t.String() }

func (t *fileToken) check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reloadToken()
}

func (t *fileToken) hasFileChanged() bool {
	info, err := os.Stat(t.path)
	if err != nil {
		return t.seen == nil
	}
	return t.seen == nil || !os.SameFile(info, t.seen) || !info.ModTime().Equal(t.seen.ModTime()) || info.Size() != t.seen.Size()
}

func (t *fileToken) reloadToken() error {
	// The state is read before the content, so that the next request detects a change in between.
	info, err := os.Stat(t.path)
	if err != nil {
		return fmt.Errorf("read token file: %w", err)
	}
	data, err := os.ReadFile(t.path)
	if err != nil {
		return fmt.Errorf("read token file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return fmt.Errorf("read token file %q: it is empty", t.path)
	}
	if err := checkToken(token); err != nil {
		return fmt.Errorf("read token file %q: %w", t.path, err)
	}
	t.token, t.seen = token, info
	return nil
}

// checkToken rejects tokens that cannot be sent in a header. Otherwise net/http would do so with
// the token in its error.
func checkToken(token string) error {
	for _, c := range []byte(token) {
		if c <= ' ' || c == 0x7f {
			return errors.New("the token contains a space or a control character; it must be one line without spaces")
		}
	}
	return nil
}
