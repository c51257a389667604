package client

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// newClient returns a client of a server with the handler h.
func newClient(t *testing.T, cfg Config, h http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	cfg.Endpoint = server.URL
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = 1
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	const secret = "geheim"
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	write(t, empty, " \n")
	broken := filepath.Join(dir, "broken")
	write(t, broken, "two words")

	cases := map[string]struct {
		reason string
		cfg    Config
		want   string
	}{
		"NoURL":         {"the first thing that a user forgets", Config{}, "URL of the fleet API is not set"},
		"NoScheme":      {"a host alone parses as a path", Config{Endpoint: "localhost"}, "use http://host:port"},
		"PasswordHost":  {"it would end up in logs, without a scheme as well", Config{Endpoint: "u:" + secret + "@h:8080"}, "use a token instead"},
		"OtherScheme":   {"only HTTP is spoken", Config{Endpoint: "unix:///run/x"}, "use http://host:port"},
		"Password":      {"it would end up in logs", Config{Endpoint: "http://u:" + secret + "@h"}, "use a token instead"},
		"BadPassword":   {"not even when the URL does not parse", Config{Endpoint: "http://u:" + secret + "@h:port"}, "invalid port"},
		"Query":         {"it would be lost", Config{Endpoint: "http://h/?a=b"}, "contains a query or fragment"},
		"Timeout":       {"a sign is a mistake", Config{Endpoint: "http://h", Timeout: -1}, "must not be negative"},
		"TokenAndName":  {"the token would win in silence", Config{Endpoint: "http://h", Token: StaticToken("a"), Header: http.Header{"Authorization": {"Basic x"}}}, "set only one"},
		"NoTokenFile":   {"better now than at the first request", Config{Endpoint: "http://h", Token: FileToken(filepath.Join(dir, "none"))}, "no such file"},
		"EmptyToken":    {"an empty token is no token", Config{Endpoint: "http://h", Token: FileToken(empty)}, "it is empty"},
		"BrokenToken":   {"net/http would print it", Config{Endpoint: "http://h", Token: FileToken(broken)}, "one line without spaces"},
		"BrokenSecret":  {"net/http would print it", Config{Endpoint: "http://h", Token: StaticToken("a\x00b")}, "one line without spaces"},
		"NoCAFile":      {"better now than at the first request", Config{Endpoint: "http://h", CAFile: filepath.Join(dir, "none")}, "no such file"},
		"NotACAFile":    {"a pool without certificates trusts nobody", Config{Endpoint: "http://h", CAFile: broken}, "no PEM certificate"},
		"HeaderName":    {"each request would fail", Config{Endpoint: "http://h", Header: http.Header{"X Tenant": {"blue"}}}, `"X Tenant" is not a header name`},
		"HeaderValue":   {"each request would fail", Config{Endpoint: "http://h", Header: http.Header{"X-Key": {secret + "\n"}}}, `value of header "X-Key" contains a control character`},
		"NegativeLimit": {"a sign is a mistake", Config{Endpoint: "http://h", MaxBody: -1}, "must not be negative"},
		"Attempts":      {"a sign is a mistake", Config{Endpoint: "http://h", MaxAttempts: -1}, "must not be negative"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New(tc.cfg)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%s: got error %v, want one with %q", tc.reason, err, tc.want)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "two words") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	const want = "http://h:1/gw" + v1.BasePath
	for _, endpoint := range []string{"http://h:1/gw", "http://h:1/gw/", "http://h:1/gw" + v1.BasePath, "http://h:1/gw" + v1.BasePath + "/"} {
		c, err := New(Config{Endpoint: endpoint})
		if err != nil {
			t.Fatalf("New(%q): %v", endpoint, err)
		}
		if c.Endpoint() != want {
			t.Errorf("New(%q).Endpoint() = %q, want %q", endpoint, c.Endpoint(), want)
		}
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	type sent struct{ Method, Path, Query, Body, Auth, Agent, ContentType, Encoding, Extra string }
	var got sent
	status := http.StatusOK
	c := newClient(t, Config{Token: StaticToken("s3cret"), UserAgent: "probe/1", Header: http.Header{"X-Tenant": {"blue"}}},
		func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = sent{
				r.Method, r.URL.EscapedPath(), r.URL.RawQuery, string(body), r.Header.Get("Authorization"), r.UserAgent(),
				r.Header.Get("Content-Type"), r.Header.Get("Accept-Encoding"), r.Header.Get("X-Tenant"),
			}
			if status == http.StatusNoContent {
				w.WriteHeader(status)
				return
			}
			writeJSON(w, status, v1.Resource{ID: "1", Name: "c1"})
		})
	ctx := t.Context()
	labels := map[string]string{"a": "b"}

	steps := map[string]struct {
		reason string
		status int
		do     func() error
		want   sent
	}{
		"Get":    {"ids are escaped", 200, func() error { _, err := c.Clusters().Get(ctx, "a/b"); return err }, sent{Method: "GET", Path: "/clusters/a%2Fb"}},
		"GetRaw": {"the same place", 200, func() error { _, err := c.Raw().Get(ctx, "clusters", "x"); return err }, sent{Method: "GET", Path: "/clusters/x"}},
		"Page": {
			"parameters are passed on", 200, func() error {
				_, err := c.Raw().ListPage(ctx, "clusters", url.Values{"labels": {"a in (b,c)"}}, nil)
				return err
			},
			sent{Method: "GET", Path: "/clusters", Query: "labels=a+in+%28b%2Cc%29"},
		},
		"Create": {
			"a child is created under its parent", 201, func() error {
				_, err := c.Collection(Nested("clusters", "p", "nodepools")).Create(ctx, v1.CreateRequest{Name: "n", Spec: json.RawMessage(`{}`)})
				return err
			},
			sent{Method: "POST", Path: "/clusters/p/nodepools", Body: `{"name":"n","spec":{}}`, ContentType: "application/json"},
		},
		"Patch": {
			"labels alone leave the spec", 200, func() error { _, err := c.Clusters().Patch(ctx, "x", v1.PatchRequest{Labels: &labels}); return err },
			sent{Method: "PATCH", Path: "/clusters/x", Body: `{"labels":{"a":"b"}}`, ContentType: "application/json"},
		},
		"Delete":     {"the object comes back while it is being deleted", 202, func() error { _, err := c.Clusters().Delete(ctx, "x"); return err }, sent{Method: "DELETE", Path: "/clusters/x"}},
		"DeleteGone": {"or nothing does", 204, func() error { _, err := c.Clusters().Delete(ctx, "x"); return err }, sent{Method: "DELETE", Path: "/clusters/x"}},
		"Report": {
			"reports are put", 201, func() error {
				_, err := c.NodePools().Report(ctx, "x", v1.Report{Adapter: "dns", ObservedGeneration: 1})
				return err
			},
			sent{Method: "PUT", Path: "/nodepools/x/statuses", Body: `{"adapter":"dns","observed_generation":1,"conditions":null}`, ContentType: "application/json"},
		},
	}
	for name, tc := range steps {
		status = tc.status
		if err := tc.do(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tc.want.Path = v1.BasePath + tc.want.Path
		tc.want.Auth, tc.want.Agent, tc.want.Extra = "Bearer s3cret", "probe/1", "blue"
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

func TestIDsThatNameAnotherPlace(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{}, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	for _, id := range []string{"", ".", ".."} {
		_, getErr := c.Clusters().Get(t.Context(), id)
		_, rawErr := c.Raw().Get(t.Context(), "clusters", id)
		_, reportErr := c.Clusters().Report(t.Context(), id, v1.Report{})
		_, statusErr := c.Clusters().Statuses(t.Context(), id)
		if getErr == nil || rawErr == nil || reportErr == nil || statusErr == nil {
			t.Errorf("id %q: got %v, %v, %v, %v, want errors", id, getErr, rawErr, reportErr, statusErr)
		}
	}
}

func TestReportTellsWhetherItWasStored(t *testing.T) {
	t.Parallel()
	status := http.StatusCreated
	c := newClient(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		if status == http.StatusNoContent {
			w.WriteHeader(status)
			return
		}
		writeJSON(w, status, v1.AdapterStatus{})
	})
	for want, code := range map[bool]int{true: http.StatusCreated, false: http.StatusNoContent} {
		status = code
		stored, err := c.Clusters().Report(t.Context(), "x", v1.Report{})
		if err != nil || stored != want {
			t.Errorf("answer %d: stored %t, err %v, want %t", code, stored, err, want)
		}
	}
	status = http.StatusConflict
	if stored, err := c.Clusters().Report(t.Context(), "x", v1.Report{}); stored || !IsConflict(err) {
		t.Errorf("answer 409: stored %t, err %v", stored, err)
	}
}

// TestImports checks that the package imports only the standard library and the types of the API, so
// that it costs its users no dependencies.
func TestImports(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if path := strings.Trim(i.Path.Value, `"`); strings.Contains(path, ".") && path != "github.com/fleetloop/fleetloop/api/fleet/v1" {
				t.Errorf("%s imports %s", file, path)
			}
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
