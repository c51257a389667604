package e2e

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	fleetclient "github.com/fleetloop/fleetloop/client"
)

// TestTokenRotation replaces the tokens of a running fleet API and of a
// running sentinel: the old one is refused at once, the new one taken without
// a restart.
func TestTokenRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	apiTokens, sentinelToken := filepath.Join(dir, "tokens.yaml"), filepath.Join(dir, "token")
	const owner = "  - {token: owner-token, subject: alice, tenant: red}\n"
	tokens := func(sentinel string) string {
		return "tokens:\n" + owner + "  - {token: " + sentinel + ", subject: sentinel, roles: [system]}\n"
	}
	replaceFile(t, apiTokens, tokens("first-token"))
	replaceFile(t, sentinelToken, "first-token\n")
	f := newFleet(t, mergeEnv(oneAdapter(), map[string]string{"FLEET_API_AUTH_MODE": "bearer", "FLEET_API_TOKEN_FILE": apiTokens}))
	if _, err := f.api.Clusters().Get(t.Context(), "x"); !fleetclient.IsUnauthorized(err) {
		t.Errorf("without a token: %v, want %d", err, http.StatusUnauthorized)
	}
	f.api = newClient(t, fleetclient.Config{Endpoint: f.url, Token: fleetclient.StaticToken("owner-token")})

	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t)})
	s := newSentinel(t, f.url, "resource_type: clusters\npoll_interval: 100ms\nmax_age_not_ready: 1h\nhyperfleet_api: {endpoint: API}\n",
		mergeEnv(rabbitEnv(rabbit(t).Addr(), exchangeOf(t)), map[string]string{"HYPERFLEET_API_TOKEN_FILE": sentinelToken}))
	s.wantReady(t)
	c := f.create(t, "cluster-1", "")
	q.wantEvents(t, c.ID, 1, patience)

	replaceFile(t, apiTokens, tokens("second-token"))
	s.wantUnready(t, "[-]sentinel failed: ", "401")
	wantMetric(t, s, "hyperfleet_sentinel_api_errors_total", 2)
	f.patch(t, c.ID)

	replaceFile(t, sentinelToken, "second-token\n")
	s.wantReady(t)
	q.wantEvents(t, c.ID, 2, patience)

	// The first token is no good to anybody.
	old := newClient(t, fleetclient.Config{Endpoint: f.url, Token: fleetclient.StaticToken("first-token")})
	if _, err := old.Clusters().Get(t.Context(), c.ID); !fleetclient.IsUnauthorized(err) {
		t.Errorf("with the first token: %v, want %d", err, http.StatusUnauthorized)
	}
	// A slip of the editor locks nobody out.
	replaceFile(t, apiTokens, "tokens: [{}]\n")
	f.wantLine(t, "token file unreadable, keeping the last tokens", nil)
	f.get(t, c.ID)
	for _, p := range []*process{f.process, s} {
		if text := p.log.String(); strings.Contains(text, "first-token") || strings.Contains(text, "second-token") || strings.Contains(text, "owner-token") {
			t.Errorf("%s logs a token", p.name)
		}
	}
}

// replaceFile puts a file in the place of another at once, as a mounted secret
// is replaced.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	next := path + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, path)); err != nil {
		t.Fatal(err)
	}
}
