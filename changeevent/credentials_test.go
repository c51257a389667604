package changeevent

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A mount simulates the volume of a Secret. Like the kubelet, it changes the files by
// replacing a symlink to a directory.
type mount struct {
	dir string
	n   int
}

func newMount(t *testing.T, files map[string]string) *mount {
	t.Helper()
	m := &mount{dir: t.TempDir()}
	m.swap(t, files)
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(m.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *mount) swap(t *testing.T, files map[string]string) {
	t.Helper()
	m.n++
	data := fmt.Sprintf("..%d", m.n)
	if err := os.Mkdir(filepath.Join(m.dir, data), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(m.dir, data, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := filepath.Join(m.dir, "..data_tmp")
	if err := os.Symlink(data, next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(m.dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(m.dir, fmt.Sprintf("..%d", m.n-1))); err != nil {
		t.Fatal(err)
	}
}

func (m *mount) file(name string) string { return filepath.Join(m.dir, name) }

func TestTokenIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		valid := "hunter-one"
		sink := &script{answer: func(_ int, r *http.Request) (*http.Response, error) {
			if r.Header.Get("X-Api-Key") != valid {
				return status(http.StatusUnauthorized), nil
			}
			return status(http.StatusOK), nil
		}}
		m := newMount(t, map[string]string{"token": "hunter-one\n"})
		var log logged
		cfg := enabled(sink)
		cfg.AuthHeader, cfg.AuthTokenFile, cfg.Logger = "x-api-key", m.file("token"), log.logger()
		c := start(t, cfg)
		var told deliveries
		send := func(reason string, requests int, want Class) {
			t.Helper()
			before, had := len(sink.got()), len(told.got())
			c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: "n", OnDelivery: told.add})
			synctest.Wait()
			d := told.got()[had:]
			if n := len(sink.got()) - before; len(d) != 1 || d[0].Class != want || n != requests {
				t.Errorf("%s: %d requests, deliveries %+v; want %d and class %q", reason, n, d, requests, want)
			}
		}
		send("the first token", 1, "")

		m.swap(t, map[string]string{"token": "hunter-two\n"})
		valid = "hunter-two"
		send("a token that is refused is read again, and no event is lost", 2, "")
		send("from then on there is no other", 1, "")

		m.swap(t, map[string]string{"token": "hunter-three"})
		time.Sleep(lookEvery)
		valid = "hunter-three"
		send("a change is seen before it is refused", 1, "")

		valid = "hunter-four"
		send("the same would be refused again", 1, ClassUnauthorized)

		m.swap(t, map[string]string{})
		valid = "hunter-three"
		time.Sleep(lookEvery)
		send("while it is gone the last one stays", 1, "")
		log.want(t, "using the last one")

		m.swap(t, map[string]string{"token": "hunter-five\r\nX-Other: y"}) //nolint:gosec // of a test
		time.Sleep(lookEvery)
		send("and while it is none", 1, "")

		m.swap(t, map[string]string{"token": "hunter-six"})
		valid = "hunter-six"
		time.Sleep(lookEvery)
		send("until there is one", 1, "")
		if strings.Contains(log.String(), "hunter") {
			t.Errorf("a token is in the log:\n%s", &log)
		}
	})
}

func TestOtherCredentialsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := strings.Repeat("1", 32), strings.Repeat("2", 32)
		m := newMount(t, map[string]string{"url": "https://one.example.com/hook\n", "key": one, "signing": "a"})
		sink := new(script)
		cfg := enabled(sink)
		cfg.Endpoint, cfg.EndpointFile = "", m.file("url")
		cfg.Format, cfg.AuthTokenFile, cfg.SigningKeyFile = FormatPagerDuty, m.file("key"), m.file("signing")
		c := start(t, cfg)
		want := func(url, key, signing string) {
			t.Helper()
			c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: "n"})
			synctest.Wait()
			calls := sink.got()
			last := calls[len(calls)-1]
			if last.url != url || !strings.Contains(last.body, `"routing_key":"`+key+`"`) || last.header.Get("Authorization") != "" {
				t.Errorf("sent %s to %s with %v, want key %s to %s", last.body, last.url, last.header, key, url)
			}
			mac := hmac.New(sha256.New, []byte(signing))
			_, _ = fmt.Fprintf(mac, "%d.%s", time.Now().Unix(), last.body) // a hash accepts any input
			if want, got := fmt.Sprintf("t=%d,v1=%s", time.Now().Unix(), hex.EncodeToString(mac.Sum(nil))), last.header.Get("X-Fleetloop-Signature"); got != want {
				t.Errorf("signature %s, want %s", got, want)
			}
		}
		want("https://one.example.com/hook", one, "a")
		m.swap(t, map[string]string{"url": "https://two.example.com/hook", "key": two, "signing": "b"})
		time.Sleep(lookEvery)
		want("https://two.example.com/hook", two, "b")
		m.swap(t, map[string]string{"url": "http://two.example.com/hook", "key": "short", "signing": "b"})
		time.Sleep(lookEvery)
		want("https://two.example.com/hook", two, "b")
	})
}

// TestSecretsAreNotTold sends to a sink that echoes requests, and fails in every way.
func TestSecretsAreNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		sink := &script{answer: func(n int, r *http.Request) (*http.Response, error) {
			if n%2 == 1 {
				return nil, fmt.Errorf("dial %s: %s", r.URL, r.Header.Get("Authorization"))
			}
			resp := status(http.StatusInternalServerError)
			resp.Body = readCloser{strings.NewReader("what is " + r.Header.Get("Authorization") + " at " + r.URL.Path)}
			return resp, nil
		}}
		cfg := once(sink)
		cfg.MaxConcurrentRequests, cfg.Endpoint, cfg.AuthScheme, cfg.AuthToken, cfg.Logger = 1, "https://hooks.example.com/services/hunter2", "Bearer", "hunter3", log.logger()
		c := start(t, cfg)
		for range 4 {
			c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon})
		}
		stop(t, c)
		log.want(t, "what is "+redacted, "dial ")
		if strings.Contains(log.String(), "hunter") {
			t.Errorf("a secret is in the log:\n%s", &log)
		}
	})
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

func TestAuthHeader(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*Config)
		header string
		want   string
	}{
		"Verbatim":       {"as in the decision record", func(c *Config) { c.AuthHeader, c.AuthToken = "Authorization", "Bearer t" }, "Authorization", "Bearer t"},
		"NoScheme":       {"nothing is added", func(c *Config) { c.AuthHeader, c.AuthToken = "Authorization", "t" }, "Authorization", "t"},
		"OtherName":      {"any name will do", func(c *Config) { c.AuthHeader, c.AuthToken = "X-Api-Key", "abc" }, "X-Api-Key", "abc"},
		"LineBreak":      {"secrets have one at their end", func(c *Config) { c.AuthToken = "abc\n" }, "Authorization", "abc"},
		"Scheme":         {"where it is asked for", func(c *Config) { c.AuthScheme, c.AuthToken = "Bearer", "abc" }, "Authorization", "Bearer abc"},
		"SchemeTwice":    {"once is enough", func(c *Config) { c.AuthScheme, c.AuthToken = "Bearer", "Bearer abc" }, "Authorization", "Bearer abc"},
		"Grafana":        {"the format knows", func(c *Config) { c.Format, c.AuthToken = FormatGrafana, "abc" }, "Authorization", "Bearer abc"},
		"GrafanaOther":   {"a proxy of one's own", func(c *Config) { c.Format, c.AuthHeader, c.AuthToken = FormatGrafana, "X-Key", "abc" }, "X-Key", "abc"},
		"Datadog":        {"the format knows", func(c *Config) { c.Format, c.AuthToken = FormatDatadog, "abc" }, "Dd-Api-Key", "abc"},
		"None":           {"there is no header without a token", func(*Config) {}, "Authorization", ""},
		"HeaderAlone":    {"nor with a name alone", func(c *Config) { c.AuthHeader = "X-Api-Key" }, "X-Api-Key", ""},
		"HeaderAndSlack": {"a format without one takes one", func(c *Config) { c.Format, c.AuthHeader, c.AuthToken = FormatSlack, "X-Key", "abc" }, "X-Key", "abc"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sink := new(script)
			cfg := enabled(sink)
			tc.change(&cfg)
			sendOne(t, cfg, ChangeEvent{Action: ActionCordon, NodeName: "n"})
			header := sink.got()[0].header
			if got := header.Get(tc.header); got != tc.want {
				t.Errorf("%s: %s is %q, want %q", tc.reason, tc.header, got, tc.want)
			}
			if _, there := header[tc.header]; there != (tc.want != "") {
				t.Errorf("%s: %s is there: %t", tc.reason, tc.header, there)
			}
			if _, empty := header[""]; empty {
				t.Errorf("%s: there is a header without a name", tc.reason)
			}
		})
	}
}
