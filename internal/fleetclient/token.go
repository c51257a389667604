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

// A tokenSource gives the bearer token. One from a file follows the file: a
// changed file is read again, and one that is gone or empty for the moment,
// as happens while a token is being replaced, leaves the last token in force.
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
	if err := t.readFile(); err != nil {
		return nil, err
	}
	return t, nil
}

// currentToken gives the token to send with a request; empty means none.
func (t *tokenSource) currentToken() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != "" && t.fileChanged() {
		_ = t.readFile() // the last token stays in force until the server refuses it
	}
	return t.token
}

// renewToken gives the token after the server refused the one that was sent, and
// whether it is another one, so that another try makes sense.
func (t *tokenSource) renewToken(refused string) (string, bool) {
	if t.file == "" {
		return "", false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// Read without asking for changes: a file may be rewritten in place
	// within the resolution of its time, at the same length.
	_ = t.readFile()
	return t.token, t.token != refused
}

func (t *tokenSource) fileChanged() bool {
	info, err := os.Stat(t.file)
	if err != nil {
		return false
	}
	return t.seen == nil || !os.SameFile(info, t.seen) || !info.ModTime().Equal(t.seen.ModTime()) || info.Size() != t.seen.Size()
}

func (t *tokenSource) readFile() error {
	// The state is taken before the content: a change in between is then
	// noticed by the next request.
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

// checkToken refuses what can not stand in a header, before net/http does so
// with the token in its error.
func checkToken(token string) error {
	for _, c := range []byte(token) {
		if c <= ' ' || c == 0x7f {
			return errors.New("the token contains a space or a control character; it must be one line without spaces")
		}
	}
	return nil
}
