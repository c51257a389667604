package session

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestRevokeRefreshToken covers the client's authentication, and that the token goes nowhere else.
func TestRevokeRefreshToken(t *testing.T) {
	t.Parallel()
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Store(true) }))
	defer other.Close()
	const secret = "s3cret"
	var endpoint, issuer string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/revoke":
			if user, password, _ := r.BasicAuth(); user != "console" || password != secret || r.PostFormValue("token") != "of-alice" || r.PostFormValue("client_id") != "" {
				w.WriteHeader(http.StatusUnauthorized)
			}
		case "/moved":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{
				"issuer": issuer, "jwks_uri": issuer, "authorization_endpoint": issuer, "token_endpoint": issuer, "revocation_endpoint": endpoint,
			})
		}
	}))
	defer server.Close()
	issuer = server.URL
	for name, tc := range map[string]struct{ reason, endpoint, says string }{
		"Secret":   {"a client with a secret authenticates", issuer + "/revoke", ""},
		"Redirect": {"the body has the token", issuer + "/moved", "307"},
		"NoTLS":    {"others could read the token", other.URL, "without TLS"},
		"None":     {"the issuer does not offer it", "", ErrNoRevocation.Error()},
	} {
		endpoint = tc.endpoint
		i, err := NewIssuer(IssuerConfig{URL: issuer, ClientID: "console", ClientSecret: secret}, server.Client().Transport)
		if err != nil {
			t.Fatal(err)
		}
		err = i.RevokeRefreshToken(t.Context(), "of-alice")
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) || leaked.Load() {
			t.Errorf("%s: %s: %v, leaked: %t", name, tc.reason, err, leaked.Load())
		}
	}
}
