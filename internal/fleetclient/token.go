package fleetclient

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/fleetloop/fleetloop/internal/settings"
)

// A tokenSource holds the bearer token. It reads a token file again when the file changes. If the
// file is missing or empty, as happens while a token is being replaced, the last token stays in
// force.
type tokenSource struct {
	file string

	mu    sync.Mutex
	token string
	seen  fs.FileInfo // of the file when it was read; nil forces a read
}

func newTokenSource(token settings.Secret, file string) (*tokenSource, error) {
	if token != "" && file != "" {
		return nil, errors.New("both a token and a token file are set; set only one")
	}
	t := &tokenSource{file: file, token: strings.TrimSpace(token.Reveal())}
	if file == "" {
		return t, checkToken(t.token)
	}
	if err := t.readTokenFile(); err != nil {
		return nil, err
	}
	return t, nil
}

// currentToken returns the token for a request; empty means none.
func (t *tokenSource) currentToken() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != "" && t.hasFileChanged() {
		_ = t.readTokenFile() // the last token stays in force until the server rejects it
	}
	return t.token
}

// rereadToken returns the token after the server rejected the one that was sent, and whether it is
// different, so that a retry makes sense.
func (t *tokenSource) rereadToken(refused string) (token string, changed bool) {
	if t.file == "" {
		return "", false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// Read without checking for changes: a file may be rewritten in place within the resolution of
	// its time, with the same length.
	_ = t.readTokenFile()
	return t.token, t.token != refused
}

func (t *tokenSource) hasFileChanged() bool {
	info, err := os.Stat(t.file)
	if err != nil {
		return false
	}
	return t.seen == nil || !os.SameFile(info, t.seen) || !info.ModTime().Equal(t.seen.ModTime()) || info.Size() != t.seen.Size()
}

func (t *tokenSource) readTokenFile() error {
	// The state is read before the content, so that the next request detects a change in between.
	info, err := os.Stat(t.file)
	if err != nil {
		return fmt.Errorf("read token file: %w", err)
	}
	data, err := os.ReadFile(t.file)
	if err != nil {
		return fmt.Errorf("read token file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return fmt.Errorf("read token file %q: it is empty", t.file)
	}
	if err := checkToken(token); err != nil {
		return fmt.Errorf("read token file %q: %w", t.file, err)
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
