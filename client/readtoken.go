package client

import (
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// readTokenLifetime is how long a read needs the token of a write. By then every standby that the server
// uses has the write: its maximum lag is at most a minute.
const readTokenLifetime = 2 * time.Minute

// A readTokens holds the tokens of recent writes. A read sends the latest, so that it finds the writes also on a
// standby of the database.
type readTokens struct {
	all bool // reads find all writes, also those of other clients

	mu     sync.Mutex
	tokens []receivedToken // in the order of arrival, each earlier than the one before
}

type receivedToken struct {
	text string
	at   time.Time
}

// addTo adds the latest token to a read.
func (t *readTokens) addTo(req *http.Request, now time.Time) {
	if req.Method != http.MethodGet {
		return
	}
	if t.all {
		req.Header.Set(v1.ReadAfterHeader, v1.ReadAfterAll)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeExpired(now)
	if len(t.tokens) > 0 {
		req.Header.Set(v1.ReadAfterHeader, t.tokens[0].text)
	}
}

// remember keeps the token of a response to a write. Responses to concurrent writes may arrive in any order, so a later
// token stays until it expires.
func (t *readTokens) remember(resp *http.Response, now time.Time) {
	text := resp.Header.Get(v1.ReadAfterHeader)
	if text == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeExpired(now)
	t.tokens = slices.DeleteFunc(t.tokens, func(kept receivedToken) bool { return kept.text <= text })
	t.tokens = append(t.tokens, receivedToken{text, now})
}

func (t *readTokens) removeExpired(now time.Time) {
	t.tokens = slices.DeleteFunc(t.tokens, func(kept receivedToken) bool { return now.Sub(kept.at) > readTokenLifetime })
}
