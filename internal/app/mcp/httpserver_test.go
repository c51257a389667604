package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/mcp"
	"github.com/fleetloop/fleetloop/internal/console/consoletest"
)

// ownToken is the token of the person who starts the server. No other person may get its rights.
const ownToken = "token-of-the-server"

// A fakeFleet is a fleet API with one cluster, whose name has the length of the reader's token.
type fakeFleet struct {
	*httptest.Server

	entered chan struct{} // gets a value for each request, if not nil
	block   chan struct{} // requests wait until it is closed, if not nil

	mu     sync.Mutex
	tokens []string
}

func newFakeFleet(t *testing.T) *fakeFleet {
	t.Helper()
	f := &fakeFleet{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		f.mu.Lock()
		f.tokens = append(f.tokens, token)
		f.mu.Unlock()
		if f.entered != nil {
			f.entered <- struct{}{}
			<-f.block
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "ClusterList", "page": 1, "size": 1, "total": 1, "items": []map[string]any{{
			"kind": "Cluster", "id": "c-1", "name": fmt.Sprint("seen-", len(token)), "metadata": map[string]any{"displayName": injection}, "generation": 1,
			"created_time": "2026-01-01T00:00:00Z", "updated_time": "2026-01-01T00:00:00Z", "status": map[string]any{"phase": "Ready"},
		}}})
	}))
	t.Cleanup(f.Close)
	return f
}

// seen returns the tokens of all requests so far.
func (f *fakeFleet) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.tokens)
}

// An httpServer is "fleetloop mcp --listen-address".
type httpServer struct {
	url  string
	stop func() (code int)
}

// A lineWriter sends what is written.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

var listening = regexp.MustCompile(`addr=(\S+)`)

// newHTTPServer starts "fleetloop mcp" on a free port. The process has a token as well.
func newHTTPServer(t *testing.T, fleet string, flags ...string) httpServer {
	t.Helper()
	lines := make(lineWriter, 100)
	env := cli.Env{Stdin: &bytes.Buffer{}, Stdout: io.Discard, Stderr: lines, LookupEnv: func(name string) (string, bool) {
		return ownToken, name == "FLEETLOOP_TOKEN"
	}}
	root := newRoot(env)
	root.AddCommand(mcp.Command(env, newRoot))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, env, root, append([]string{"mcp", "--server", fleet, "--listen-address=127.0.0.1:0"}, flags...))
	}()
	stop := sync.OnceValue(func() int { cancel(); return <-ended })
	t.Cleanup(func() { stop() })
	select {
	case line := <-lines:
		if match := listening.FindStringSubmatch(line); match != nil {
			return httpServer{"http://" + match[1] + "/mcp", stop}
		}
		t.Fatalf("fleetloop mcp says %s", line)
	case code := <-ended:
		t.Fatalf("fleetloop mcp ended with %d", code)
	}
	return httpServer{}
}

// A sender sends requests with headers.
type sender struct {
	header map[string]string
	*http.Transport
}

func (s sender) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range s.header {
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	return s.Transport.RoundTrip(r)
}

// connect opens a session of the SDK's own client, with headers on every request.
func (h httpServer) connect(t *testing.T, header map[string]string) (assistant, error) {
	t.Helper()
	transport := sender{header, &http.Transport{}}
	t.Cleanup(transport.CloseIdleConnections)
	client := claude()
	session, err := sdk.NewClient(&client, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: h.url, HTTPClient: &http.Client{Transport: transport}, MaxRetries: -1,
	}, nil)
	if err != nil {
		return assistant{}, err
	}
	t.Cleanup(func() { _ = session.Close() })
	return assistant{t, session}, nil
}

// mustConnect opens a session with a token.
func (h httpServer) mustConnect(t *testing.T, token string) assistant {
	t.Helper()
	a, err := h.connect(t, bearer(token))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// post sends a request without the SDK. The status is 0 if there is no response.
func (h httpServer) post(t *testing.T, header map[string]string, body string) (status int, answer http.Header, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	response, err := (&http.Client{Transport: sender{header, &http.Transport{DisableKeepAlives: true}}}).Do(r)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return response.StatusCode, response.Header, string(all)
}

const findCall = `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "find_resources", "arguments": {"kind": "clusters"}}}`

// issue returns a token of a person with other claims.
func issue(t *testing.T, issuer *consoletest.Issuer, claims map[string]any) string {
	t.Helper()
	issuer.Change = func(all map[string]any) {
		maps.Copy(all, claims)
	}
	return issuer.IssueIDToken(t)
}

func withIssuer(issuer *consoletest.Issuer, more ...string) []string {
	return append([]string{"--oidc-issuer=" + issuer.URL, "--oidc-audience=" + consoletest.ClientID}, more...)
}
