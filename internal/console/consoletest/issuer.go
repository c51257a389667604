// Package consoletest helps to test the console: one suite for all stores of sessions, an OpenID Connect issuer,
// and a browser, which the benchmarks use, too.
package consoletest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// ClientID is the only client of the issuer.
const ClientID = "console"

// An Issuer is an OpenID Connect issuer that signs alice in. It enforces PKCE and replaces refresh
// tokens. Set the fields before the first request.
type Issuer struct {
	URL string
	// Refresh is the number of the only valid refresh token.
	Refresh int
	// Life is the lifetime of the tokens.
	Life time.Duration
	// Revocation is the status of the answers to revocations, 0 if the issuer does not offer them.
	Revocation int
	// KeyFailures is the number of requests for the keys that will fail.
	KeyFailures int
	// NoIDToken leaves the ID token out of the answers to refresh tokens.
	NoIDToken bool
	// Change changes the claims of each ID token.
	Change func(claims map[string]any)

	server *httptest.Server
	key    *ecdsa.PrivateKey

	mu      sync.Mutex
	codes   map[string]url.Values // the authorization requests, by code
	devices map[string]string     // the user codes, by device code; empty once a person has entered it
	issued  []string
	revoked []string
}

// StartIssuer starts an issuer. It is closed when the test ends.
func StartIssuer(tb testing.TB) *Issuer {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	i := &Issuer{
		key:        key,
		codes:      map[string]url.Values{},
		devices:    map[string]string{},
		Life:       time.Hour,
		Revocation: http.StatusOK,
		Change:     func(map[string]any) {},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		document := map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			"device_authorization_endpoint":         i.URL + "/device_authorization",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		}
		if i.Revocation != 0 {
			document["revocation_endpoint"] = i.URL + "/revoke"
		}
		_ = json.NewEncoder(w).Encode(document)
	})
	mux.HandleFunc("GET /keys", i.serveKeys)
	mux.HandleFunc("GET /authorize", serveSignInForm)
	mux.HandleFunc("POST /authorize", i.redirectWithCode)
	mux.HandleFunc("POST /token", i.serveToken)
	mux.HandleFunc("POST /device_authorization", i.serveDeviceCode)
	mux.HandleFunc("POST /revoke", i.serveRevocation)
	i.server = httptest.NewServer(mux)
	i.URL = i.server.URL
	tb.Cleanup(i.Close)
	return i
}

// Close stops the issuer.
func (i *Issuer) Close() { i.server.Close() }

// ListIssuedTokens returns all tokens that the issuer has given out.
func (i *Issuer) ListIssuedTokens() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]string(nil), i.issued...)
}

func (i *Issuer) serveKeys(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.KeyFailures > 0 {
		i.KeyFailures--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	_ = json.NewEncoder(w).
		Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "k", Use: "sig", Algorithm: "ES256"}}})
}

// serveRevocation revokes a refresh token, as RFC 7009 says.
func (i *Issuer) serveRevocation(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.PostFormValue("client_id") != ClientID || r.PostFormValue("token_type_hint") != "refresh_token" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if i.Revocation == http.StatusOK {
		token := r.PostFormValue("token")
		i.revoked = append(i.revoked, token)
		if token == fmt.Sprint("secret-refresh-", i.Refresh) {
			i.Refresh = -1
		}
	}
	w.WriteHeader(i.Revocation)
}

// ListRevokedTokens returns the tokens that were revoked.
func (i *Issuer) ListRevokedTokens() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]string(nil), i.revoked...)
}

// SignInAndGetCallback plays a person who signs in at the URL of an authorization request. It returns the URL of the
// callback.
func (i *Issuer) SignInAndGetCallback(tb testing.TB, authURL string) (callbackURL *url.URL) {
	tb.Helper()
	u, err := url.Parse(authURL)
	if err != nil || !strings.HasPrefix(authURL, i.URL+"/authorize?") {
		tb.Fatalf("the browser is sent to %s", authURL)
	}
	callback, err := i.issueCode(u.Query())
	if err != nil {
		tb.Fatalf("%v: %s", err, authURL)
	}
	return callback
}

var errIncomplete = errors.New("the authorization request is not complete")

func (i *Issuer) issueCode(query url.Values) (callback *url.URL, err error) {
	if query.Get("response_type") != "code" || query.Get("client_id") != ClientID || query.Get("code_challenge_method") != "S256" || query.Get("code_challenge") == "" ||
		query.Get("nonce") == "" || query.Get("state") == "" || !strings.Contains(query.Get("scope"), "openid") {
		return nil, errIncomplete
	}
	if callback, err = url.Parse(query.Get("redirect_uri")); err != nil {
		return nil, fmt.Errorf("parse the redirect URL: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	code := fmt.Sprint("code-", len(i.codes))
	i.codes[code] = query
	callback.RawQuery = url.Values{"code": {code}, "state": {query.Get("state")}}.Encode()
	return callback, nil
}

// form is the page on which a person signs in. It posts to its own URL.
const form = `<!doctype html><title>Issuer</title><link rel="icon" href="data:,"><h1>Issuer</h1><form method="post"><button>Sign in as alice</button></form>`

func serveSignInForm(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, form) }

func (i *Issuer) redirectWithCode(w http.ResponseWriter, r *http.Request) {
	callback, err := i.issueCode(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	http.Redirect(w, r, callback.String(), http.StatusSeeOther) //nolint:gosec // the test says where to
}

func (i *Issuer) serveToken(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	nonce, problem := i.redeemGrantAndGetNonce(r)
	if problem != "" {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": problem})
		return
	}
	i.Refresh++
	id, err := i.newIDToken(nonce)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	refresh, access := fmt.Sprint("secret-refresh-", i.Refresh), "secret-access"
	i.issued = append(i.issued, id, refresh, access)
	answer := map[string]any{
		"access_token": access, "token_type": "Bearer", "expires_in": int(i.Life.Seconds()), "refresh_token": refresh, "id_token": id,
	}
	if i.NoIDToken && r.FormValue("grant_type") == "refresh_token" {
		delete(answer, "id_token")
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// IssueIDToken returns an ID token of alice, without a sign-in.
func (i *Issuer) IssueIDToken(tb testing.TB) string {
	tb.Helper()
	token, err := i.newIDToken("")
	if err != nil {
		tb.Fatal(err)
	}
	return token
}

func (i *Issuer) newIDToken(nonce string) (signedJWT string, err error) {
	claims := map[string]any{
		"iss":   i.URL,
		"aud":   ClientID,
		"sub":   "alice",
		"nonce": nonce,
		"iat":   time.Now().Unix(),
		"exp":   time.Now().Add(i.Life).Unix(),
	}
	i.Change(claims)
	return i.signJWT(claims)
}

// redeemGrantAndGetNonce checks a request for tokens. A code counts once.
func (i *Issuer) redeemGrantAndGetNonce(r *http.Request) (nonce, oauthError string) {
	const invalid = "invalid_grant"
	switch r.FormValue("grant_type") {
	case "authorization_code":
		asked, ok := i.codes[r.FormValue("code")]
		delete(i.codes, r.FormValue("code"))
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		ok = ok && base64.RawURLEncoding.EncodeToString(sum[:]) == asked.Get("code_challenge") &&
			r.FormValue("redirect_uri") == asked.Get("redirect_uri")
		if ok {
			return asked.Get("nonce"), ""
		}
	case "refresh_token":
		if r.FormValue("refresh_token") == fmt.Sprint("secret-refresh-", i.Refresh) {
			return "", ""
		}
	case deviceGrant:
		return "", i.redeemDeviceCode(r.FormValue("device_code"))
	}
	return "", invalid
}

func (i *Issuer) signJWT(claims map[string]any) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "k"}}, nil)
	if err != nil {
		return "", fmt.Errorf("create signer: %w", err)
	}
	text, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encode claims: %w", err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		return "", fmt.Errorf("sign claims: %w", err)
	}
	return signed.CompactSerialize()
}
