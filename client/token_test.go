package client

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	c, accept, refused := newGuarded(t, Config{Token: FileToken(file)})

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
	c, accept, refused := newGuarded(t, Config{Token: FileToken(file)})
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
	if _, err := c.Clusters().Get(t.Context(), "x"); !IsUnauthorized(err) {
		t.Errorf("got %v, want the refusal", err)
	}
	if n := refused.Load(); n != 1 {
		t.Errorf("the same token was sent %d times, want once: it would be refused again", n)
	}
}

func TestFixedTokenIsNotTriedTwice(t *testing.T) {
	t.Parallel()
	c, accept, refused := newGuarded(t, Config{Token: StaticToken("old")})
	accept("new")
	if _, err := c.Clusters().Get(t.Context(), "x"); !IsUnauthorized(err) || refused.Load() != 1 {
		t.Errorf("got %v after %d refusals, want one 401", err, refused.Load())
	}
}

func TestBodyIsSentAgainAfter401(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "old")
	var bodies []int64
	c := newClient(t, Config{Token: FileToken(file)}, func(w http.ResponseWriter, r *http.Request) {
		bodies = append(bodies, r.ContentLength)
		if len(bodies) == 1 {
			write(t, file, "new")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		writeJSON(w, http.StatusCreated, v1.Resource{})
	})
	if _, err := c.Clusters().Create(t.Context(), v1.CreateRequest{Name: "n"}); err != nil {
		t.Fatal(err)
	}
	if len(bodies) != 2 || bodies[0] == 0 || bodies[0] != bodies[1] {
		t.Errorf("bodies of %v bytes, want the same twice", bodies)
	}
}

// TestTokenFunc checks that a function learns which token was rejected, and that the request is sent
// with the new one.
func TestTokenFunc(t *testing.T) {
	t.Parallel()
	var asked []string
	c, accept, refused := newGuarded(t, Config{Token: TokenFunc(func(_ context.Context, rejected string) (string, error) {
		asked = append(asked, rejected)
		return "after-" + rejected, nil
	})})
	accept("after-after-")
	wantGet(t, c, "the second token is accepted")
	if diff := cmp.Diff([]string{"", "after-"}, asked); diff != "" || refused.Load() != 1 {
		t.Errorf("%d refusals; rejected tokens (-want +got):\n%s", refused.Load(), diff)
	}
}

// TestTokenSourceFails checks that an error of the source is not taken for one of the server, and
// that nothing is sent.
func TestTokenSourceFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("vault is sealed")
	cases := map[string]struct {
		reason string
		token  TokenFunc
		want   string
	}{
		"Error":   {"the cause comes through", func(context.Context, string) (string, error) { return "", broken }, "get a token: vault is sealed"},
		"Invalid": {"net/http would print it", func(context.Context, string) (string, error) { return "two words", nil }, "one line without spaces"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, Config{Token: tc.token}, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
			_, err := c.Clusters().Get(t.Context(), "x")
			if err == nil || IsTransient(err) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "two words") {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func TestTokensAreNotPrinted(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "geheim")
	for _, source := range []TokenSource{StaticToken("geheim"), FileToken(file)} {
		if _, err := source.Token(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if text := fmt.Sprintf(verb, Config{Token: source}); strings.Contains(text, "geheim") {
				t.Errorf("%s prints %s", verb, text)
			}
		}
	}
}

// TestWithToken checks that clients with other tokens share the connections.
func TestWithToken(t *testing.T) {
	t.Parallel()
	from := map[string]string{}
	anonymous := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		from[r.Header.Get("Authorization")] = r.RemoteAddr
		writeJSON(w, http.StatusOK, v1.Resource{})
	})
	alice, err := anonymous.WithToken(StaticToken("alice"))
	if err != nil {
		t.Fatal(err)
	}
	wantGet(t, alice, "with a token")
	wantGet(t, anonymous, "without one")
	if len(from) != 2 || from[""] != from["Bearer alice"] {
		t.Errorf("requests came from %v, want one connection", from)
	}
	if _, err := anonymous.WithToken(StaticToken("two words")); err == nil {
		t.Error("an invalid token was taken")
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

	trusting, err := New(Config{Endpoint: server.URL, CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trusting.CloseIdle)
	wantGet(t, trusting, "a certificate of the file is trusted")

	wary, err := New(Config{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = wary.Clusters().Get(t.Context(), "x")
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Errorf("got %v, want an unknown authority", err)
	}
}

func wantGet(t *testing.T, c *Client, reason string) {
	t.Helper()
	if _, err := c.Clusters().Get(t.Context(), "x"); err != nil {
		t.Errorf("%s: %v", reason, err)
	}
}
