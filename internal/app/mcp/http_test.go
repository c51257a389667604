package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/mcp"
	"github.com/fleetloop/fleetloop/internal/console/consoletest"
)

// TestHTTPTokens covers that a request needs a valid token, that an assistant learns where to get one, and that
// calls have the person's token and not that of the server.
func TestHTTPTokens(t *testing.T) {
	issuer, other := consoletest.StartIssuer(t), consoletest.StartIssuer(t)
	fleet := newFakeFleet(t)
	h := newHTTPServer(t, fleet.URL, withIssuer(issuer, "--public-url=https://mcp.example.com/fleet/mcp")...)
	h.url = strings.Replace(h.url, "/mcp", "/fleet/mcp", 1)
	for name, header := range map[string]map[string]string{
		"NoToken":       {},
		"NoBearer":      {"Authorization": "Basic YTpi"},
		"OwnToken":      bearer(ownToken),
		"Expired":       bearer(issue(t, issuer, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})),
		"WrongAudience": bearer(issue(t, issuer, map[string]any{"aud": "kubernetes"})),
		"WrongIssuer":   bearer(issue(t, other, nil)),
		"WrongKey":      bearer(issue(t, other, map[string]any{"iss": issuer.URL})),
	} {
		status, answer, text := h.post(t, header, findCall)
		want := `Bearer resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/fleet/mcp"`
		if got := answer.Get("WWW-Authenticate"); status != http.StatusUnauthorized || got != want {
			t.Errorf("%s: status %d, WWW-Authenticate %q: %s", name, status, got, text)
		}
		if _, err := h.connect(t, header); err == nil {
			t.Errorf("%s: there is a session", name)
		}
	}
	if seen := fleet.seen(); len(seen) > 0 {
		t.Errorf("the fleet API was asked with %q", seen)
	}
	base := strings.TrimSuffix(h.url, "/fleet/mcp")
	for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/fleet/mcp"} {
		want := map[string]any{
			"resource": "https://mcp.example.com/fleet/mcp", "authorization_servers": []any{issuer.URL}, "bearer_methods_supported": []any{"header"}, "resource_name": "Fleetloop",
		}
		if diff := cmp.Diff(want, getJSON(t, base+path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}

	token := issue(t, issuer, nil)
	a := h.mustConnect(t, token)
	text, failed := a.call("find_resources", map[string]any{"kind": "clusters", "full": true})
	if failed || !strings.Contains(text, fmt.Sprintf("seen-%d", len(token))) {
		t.Errorf("failed: %t: %s", failed, text)
	}
	wantMarked(t, text)
	if seen := fleet.seen(); len(seen) == 0 || slices.ContainsFunc(seen, func(s string) bool { return s != token }) {
		t.Errorf("the fleet API was asked with %q", seen)
	}
	for name, tool := range a.tools() {
		if slices.Contains([]string{"list_audit", "list_node_faults", "list_executions", "plan_sentinel", "request_execution"}, name) || !tool.Annotations.ReadOnlyHint {
			t.Errorf("there is a tool %s", name)
		}
	}
}

func getJSON(t *testing.T, url string) (document map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&document); err != nil {
		t.Error(err)
	}
	return document
}

// TestHTTPSessions covers that nothing of a person's session can be reached with the token of another.
func TestHTTPSessions(t *testing.T) {
	issuer, fleet := consoletest.StartIssuer(t), newFakeFleet(t)
	h := newHTTPServer(t, fleet.URL, withIssuer(issuer)...)
	alice, bob := issue(t, issuer, nil), issue(t, issuer, map[string]any{"sub": "bob", "groups": "a longer token"})
	a := h.mustConnect(t, alice)
	if id := a.ID(); id != "" {
		t.Errorf("alice has the session %q", id)
	}
	for _, token := range []string{alice, bob, alice} {
		header := bearer(token)
		header["Mcp-Session-Id"] = "session-of-alice"
		status, answer, text := h.post(t, header, findCall)
		if status != http.StatusOK || answer.Get("Mcp-Session-Id") != "" || !strings.Contains(text, fmt.Sprintf("seen-%d", len(token))) {
			t.Errorf("status %d: %s", status, text)
		}
		if seen := fleet.seen(); seen[len(seen)-1] != token {
			t.Error("the fleet API was asked with the token of another person")
		}
	}
}

// TestHTTPKubernetes covers that with a kubeconfig, the Kubernetes API gets the person's token and no credentials of
// the kubeconfig, and that text of the fleet stays data.
func TestHTTPKubernetes(t *testing.T) {
	issuer, cluster := consoletest.StartIssuer(t), newFakeAPIServer(t)
	var mu sync.Mutex
	var seen []string
	next := cluster.Config.Handler
	cluster.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Header.Get("Authorization")+r.Header.Get("Impersonate-User"))
		mu.Unlock()
		next.ServeHTTP(w, r)
	})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": "` + cluster.URL + `"}}],
		"users": [{"name": "u", "user": {"token": "` + ownToken + `", "as": "admin", "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false", "interactiveMode": "Never"}}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHTTPServer(t, "http://127.0.0.1:1", withIssuer(issuer, "--kubeconfig", kubeconfig, "--allow-requests")...)
	token := issue(t, issuer, nil)
	a := h.mustConnect(t, token)
	for tool, input := range map[string]map[string]any{
		"list_executions": nil, "describe_execution": {"name": "made-1"}, "list_node_faults": nil, "describe_node_fault": {"name": "node-1"},
	} {
		text, failed := a.call(tool, input)
		if failed {
			t.Errorf("%s: %s", tool, text)
			continue
		}
		wantMarked(t, text)
	}
	text, failed := a.call("request_execution", map[string]any{"action": "rollout_restart", "target": "Deployment/shop/web", "reason": "x"})
	made := cluster.created()
	if failed || len(made) != 1 || made[0].Spec.RequestedByAgent != "claude-code 2.1" && made[0].Spec.RequestedByAgent != "unknown assistant" {
		t.Errorf("created %+v: %s", made, text)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) == 0 || slices.ContainsFunc(seen, func(s string) bool { return s != "Bearer "+token }) {
		t.Errorf("the Kubernetes API was asked with %q", seen)
	}
	if a.tools()["list_audit"] != nil {
		t.Error("everyone can read the audit")
	}
}

// TestHTTPOrigins covers that web pages, other host names and large requests are refused.
func TestHTTPOrigins(t *testing.T) {
	fleet := newFakeFleet(t)
	h := newHTTPServer(t, fleet.URL, "--public-url=http://mcp.example.com/mcp")
	for name, tc := range map[string]struct {
		header map[string]string
		body   string
		status int
	}{
		"Assistant":   {nil, findCall, http.StatusOK},
		"PublicHost":  {map[string]string{"Host": "mcp.example.com"}, findCall, http.StatusOK},
		"OtherOrigin": {map[string]string{"Origin": "https://evil.example.com"}, findCall, http.StatusForbidden},
		"OtherSite":   {map[string]string{"Sec-Fetch-Site": "cross-site"}, findCall, http.StatusForbidden},
		"Rebound":     {map[string]string{"Host": "evil.example.com", "Origin": "http://evil.example.com"}, findCall, http.StatusForbidden},
		"ReboundHost": {map[string]string{"Host": "evil.example.com:8090"}, findCall, http.StatusForbidden},
		"Large":       {nil, strings.Replace(findCall, "clusters", strings.Repeat("x", 1<<20), 1), http.StatusRequestEntityTooLarge},
	} {
		before := len(fleet.seen())
		status, _, text := h.post(t, tc.header, tc.body)
		if status != tc.status {
			t.Errorf("%s: status %d: %s", name, status, text)
		}
		if asked := len(fleet.seen()) > before; asked != (tc.status == http.StatusOK) {
			t.Errorf("%s: the fleet API was asked: %t", name, asked)
		}
	}
	if seen := fleet.seen(); seen[0] != ownToken {
		t.Errorf("without an issuer, the fleet API was asked with %q", seen)
	}
}

// TestHTTPStop covers that a stop waits for running calls, and that only so many run at once.
func TestHTTPStop(t *testing.T) {
	const atOnce = 32
	fleet := newFakeFleet(t)
	fleet.entered, fleet.block = make(chan struct{}, 2*atOnce), make(chan struct{})
	unblock := sync.OnceFunc(func() { close(fleet.block) })
	t.Cleanup(unblock)
	h := newHTTPServer(t, fleet.URL)
	if _, err := h.connect(t, nil); err != nil { // which stays open
		t.Fatal(err)
	}
	texts := make(chan string, atOnce)
	for range atOnce {
		go func() {
			_, _, text := h.post(t, nil, findCall)
			texts <- text
		}()
	}
	for range atOnce {
		<-fleet.entered
	}
	if _, _, text := h.post(t, nil, findCall); !strings.Contains(text, "too many calls at once") {
		t.Errorf("one call more: %s", text)
	}
	stopped := make(chan int)
	go func() { stopped <- h.stop() }()
	for { // until it accepts no connections
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimSuffix(strings.TrimPrefix(h.url, "http://"), "/mcp"))
		if err != nil {
			break
		}
		_ = c.Close()
	}
	select {
	case code := <-stopped:
		t.Fatalf("ended with %d before the calls", code)
	default:
	}
	unblock()
	for range atOnce {
		if text := <-texts; !strings.Contains(text, "seen-") {
			t.Errorf("a running call got %s", text)
		}
	}
	if code := <-stopped; code != cli.CodeOK {
		t.Errorf("ended with %d", code)
	}
}

// TestHTTPFlags covers what would let strangers in, or tokens travel in the clear.
func TestHTTPFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		flags string
		says  string
	}{
		"NoIssuer":   {"--listen-address=:8090 --public-url=https://a.example.com", "set the issuer"},
		"NoAudience": {"--listen-address=127.0.0.1:0 --oidc-issuer=https://a.example.com", "both required"},
		"NoTLS":      {"--listen-address=:8090 --oidc-issuer=https://a.example.com --oidc-audience=a --public-url=http://b.example.com/mcp", "without TLS"},
		"NoURL":      {"--listen-address=:8090 --oidc-issuer=https://a.example.com --oidc-audience=a", "without TLS"},
		"BadURL":     {"--listen-address=127.0.0.1:0 --public-url=mcp", "is invalid"},
		"BadPath":    {"--listen-address=127.0.0.1:0 --public-url=http://a/{", "is invalid"},
		"OneTLSFile": {"--listen-address=127.0.0.1:0 --tls-cert-file=tls.crt", "certificate and key are both required"},
		"NoAddress":  {"--oidc-issuer=https://a.example.com --oidc-audience=a", "require --listen-address"},
		"NoCluster":  {"--listen-address=127.0.0.1:0 --allow-requests --oidc-issuer=https://a.example.com --oidc-audience=a", "requires --kubeconfig"},
	} {
		var said bytes.Buffer
		env := cli.Env{Stdin: &bytes.Buffer{}, Stdout: io.Discard, Stderr: &said}
		root := newRoot(env)
		root.AddCommand(mcp.Command(env, newRoot))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it must not serve
		if code := cli.Run(ctx, env, root, append([]string{"mcp"}, strings.Fields(tc.flags)...)); code == cli.CodeOK || !strings.Contains(said.String(), tc.says) {
			t.Errorf("%s: ended with %d, want %q in %s", name, code, tc.says, said.String())
		}
		cancel()
	}
}
