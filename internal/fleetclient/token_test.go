package fleetclient

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// newGuarded returns a client of a server that accepts only the token set by accept, and counts the
// refusals.
func newGuarded(t *testing.T, cfg Config) (c *Client, accept func(string), refused *atomic.Int32) {
	t.Helper()
	var valid atomic.Pointer[string]
	refused = new(atomic.Int32)
	c = newClient(t, cfg, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+*valid.Load() {
			refused.Add(1)
			writeJSON(w, http.StatusUnauthorized, v1.Problem{Detail: "token expired"})
			return
		}
		writeJSON(w, http.StatusOK, v1.Resource{ID: "x"})
	})
	return c, func(token string) { valid.Store(&token) }, refused
}

func TestTokenFileFollowsItsChanges(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "one\n")
	c, accept, refused := newGuarded(t, Config{TokenFile: file})

	accept("one")
	wantGet(t, c, "the first token")

	accept("second")
	write(t, file, "second\n")
	wantGet(t, c, "a file of another size is read before the request")
	if n := refused.Load(); n != 0 {
		t.Errorf("the old token was sent %d times after the file changed", n)
	}

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	wantGet(t, c, "the last token stays while the file is away")
	write(t, file, "")
	wantGet(t, c, "and while it is empty")

	next := file + ".next"
	write(t, next, "third!")
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
	accept("third!")
	wantGet(t, c, "a file put in its place by rename")
}

func TestTokenIsReadAgainAfter401(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "aaaa")
	c, accept, refused := newGuarded(t, Config{TokenFile: file})
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}

	// Same file, size and time: only the server's refusal reveals the change.
	write(t, file, "bbbb")
	if err := os.Chtimes(file, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	accept("bbbb")
	wantGet(t, c, "the request is sent once more with the new token")
	if n := refused.Load(); n != 1 {
		t.Errorf("refused %d times, want once", n)
	}

	accept("cccc")
	refused.Store(0)
	if _, err := c.Get(t.Context(), "clusters", "x"); !IsUnauthorized(err) {
		t.Errorf("got %v, want the refusal", err)
	}
	if n := refused.Load(); n != 1 {
		t.Errorf("the same token was sent %d times, want once: it would be refused again", n)
	}
}

func TestFixedTokenIsNotTriedTwice(t *testing.T) {
	t.Parallel()
	c, accept, refused := newGuarded(t, Config{Token: "old"})
	accept("new")
	if _, err := c.Get(t.Context(), "clusters", "x"); !IsUnauthorized(err) || refused.Load() != 1 {
		t.Errorf("got %v after %d refusals, want one 401", err, refused.Load())
	}
}

func TestBodyIsSentAgainAfter401(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "old")
	var bodies []int64
	c := newClient(t, Config{TokenFile: file}, func(w http.ResponseWriter, r *http.Request) {
		bodies = append(bodies, r.ContentLength)
		if len(bodies) == 1 {
			write(t, file, "new")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		writeJSON(w, http.StatusCreated, v1.Resource{})
	})
	if _, err := c.Create(t.Context(), "clusters", v1.CreateRequest{Name: "n"}); err != nil {
		t.Fatal(err)
	}
	if len(bodies) != 2 || bodies[0] == 0 || bodies[0] != bodies[1] {
		t.Errorf("bodies of %v bytes, want the same twice", bodies)
	}
}

func TestCAFile(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, v1.Resource{})
	}))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = nil
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))

	trusting, err := New(Config{Endpoint: server.URL, CAFile: ca}, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trusting.CloseIdle)
	wantGet(t, trusting, "a certificate of the file is trusted")

	wary, err := New(Config{Endpoint: server.URL}, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = wary.Get(t.Context(), "clusters", "x")
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Errorf("got %v, want an unknown authority", err)
	}
}

func wantGet(t *testing.T, c *Client, reason string) {
	t.Helper()
	if _, err := c.Get(t.Context(), "clusters", "x"); err != nil {
		t.Errorf("%s: %v", reason, err)
	}
}
