package auth_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
)

// A provider is an OpenID Connect issuer in this process.
type provider struct {
	server  *httptest.Server
	fetches atomic.Int64
	down    atomic.Bool

	mu   sync.Mutex
	keys jose.JSONWebKeySet
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(t, w, map[string]any{"issuer": p.server.URL, "jwks_uri": p.server.URL + "/keys"})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.fetches.Add(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		writeJSON(t, w, p.keys)
	})
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.down.Load() {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.server.Close)
	return p
}

func writeJSON(t *testing.T, w http.ResponseWriter, v any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		t.Error(err)
	}
}

// publish publishes the key under an id.
func (p *provider) publish(kid string, key crypto.PublicKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys.Keys = append(p.keys.Keys, jose.JSONWebKey{Key: key, KeyID: kid, Use: "sig"})
}

func (p *provider) config() auth.Issuer {
	return auth.Issuer{Issuer: p.server.URL, Audience: "fleet-api"}
}

// claims returns the claims of a valid token, with changes; nil removes one.
func (p *provider) claims(changes map[string]any) map[string]any {
	c := map[string]any{
		"iss": p.server.URL, "aud": "fleet-api", "sub": "alice", "tenant": "red",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// wantPrincipal checks the principal of a token that is valid for an hour.
func wantPrincipal(t *testing.T, want, got auth.Principal) {
	t.Helper()
	if left := time.Until(got.Expires); want.Subject != "" && (left > time.Hour || left < 50*time.Minute) {
		t.Errorf("the principal ends in %s", left)
	}
	got.Expires = want.Expires
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, kid string, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", kid))
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := s.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func rsaKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newIssuers(t *testing.T, issuers ...auth.Issuer) *auth.Authenticator {
	t.Helper()
	a, err := auth.New(auth.Config{Mode: auth.ModeBearer, Issuers: issuers}, auth.Deps{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestIssuerTokens(t *testing.T) {
	p := newProvider(t)
	key, stranger := rsaKey(t), rsaKey(t)
	p.publish("k1", &key.PublicKey)
	a := newIssuers(t, p.config())

	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(changes map[string]any) string {
		return sign(t, jose.RS256, key, "k1", p.claims(changes))
	}
	raw := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	payload, err := json.Marshal(p.claims(nil))
	if err != nil {
		t.Fatal(err)
	}

	cases := map[string]struct {
		reason string
		token  string
		want   auth.Principal
		err    error
	}{
		"Sound":          {"who it says", signed(nil), auth.Principal{Subject: "alice", Tenant: "red"}, nil},
		"Audiences":      {"ours among several", signed(map[string]any{"aud": []string{"x", "fleet-api"}}), auth.Principal{Subject: "alice", Tenant: "red"}, nil},
		"System":         {"roles as a list", signed(map[string]any{"roles": []any{"dev", "system", 7}, "tenant": nil}), auth.Principal{Subject: "alice", Roles: []auth.Role{auth.System}}, nil},
		"SystemWords":    {"roles as words", signed(map[string]any{"roles": "dev system"}), auth.Principal{Subject: "alice", Tenant: "red", Roles: []auth.Role{auth.System}}, nil},
		"ByChance":       {"a word that the issuer uses for something else gives no role", signed(map[string]any{"roles": "viewer operator"}), auth.Principal{Subject: "alice", Tenant: "red"}, nil},
		"AlmostSystem":   {"a longer word is another role", signed(map[string]any{"roles": "systematic"}), auth.Principal{Subject: "alice", Tenant: "red"}, nil},
		"NoTenant":       {"that is for others to judge", signed(map[string]any{"tenant": nil}), auth.Principal{Subject: "alice"}, nil},
		"Expired":        {"its time is over", signed(map[string]any{"exp": time.Now().Add(-time.Second).Unix()}), auth.Principal{}, auth.ErrExpired},
		"NotYet":         {"its time has not come", signed(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), auth.Principal{}, auth.ErrInvalidToken},
		"NoExpiry":       {"a token that never ends", signed(map[string]any{"exp": nil}), auth.Principal{}, auth.ErrInvalidToken},
		"OtherAudience":  {"meant for somebody else", signed(map[string]any{"aud": "other"}), auth.Principal{}, auth.ErrInvalidToken},
		"NoAudience":     {"meant for nobody", signed(map[string]any{"aud": nil}), auth.Principal{}, auth.ErrInvalidToken},
		"OtherIssuer":    {"nobody we know", signed(map[string]any{"iss": "https://evil.example.com"}), auth.Principal{}, auth.ErrInvalidToken},
		"NoSubject":      {"of nobody", signed(map[string]any{"sub": nil}), auth.Principal{}, auth.ErrInvalidToken},
		"ForgedSubject":  {"it reads like an impersonation", signed(map[string]any{"sub": "bob (impersonated by alice)"}), auth.Principal{}, auth.ErrInvalidToken},
		"StrangeSubject": {"what no log can hold", signed(map[string]any{"sub": "a\x00b"}), auth.Principal{}, auth.ErrInvalidToken},
		"StrangeTenant":  {"what no row can hold", signed(map[string]any{"tenant": "a\x00b"}), auth.Principal{}, auth.ErrInvalidToken},
		"OtherKey":       {"signed by somebody else", sign(t, jose.RS256, stranger, "k1", p.claims(nil)), auth.Principal{}, auth.ErrInvalidToken},
		"OtherAlgorithm": {"not on the list", sign(t, jose.RS512, key, "k1", p.claims(nil)), auth.Principal{}, auth.ErrInvalidToken},
		"PublicAsSecret": {"a symmetric signature with the public key", sign(t, jose.HS256, public, "k1", p.claims(nil)), auth.Principal{}, auth.ErrInvalidToken},
		"Unsigned":       {"alg none", raw(`{"alg":"none"}`) + "." + raw(string(payload)) + ".", auth.Principal{}, auth.ErrInvalidToken},
		"CutOff":         {"no signature", raw(`{"alg":"RS256","kid":"k1"}`) + "." + raw(string(payload)) + ".", auth.Principal{}, auth.ErrInvalidToken},
		"NotJSON":        {"no claims", "a." + raw("{") + ".c", auth.Principal{}, auth.ErrInvalidToken},
		"NotBase64":      {"no claims either", "a.!.c", auth.Principal{}, auth.ErrInvalidToken},
		"Opaque":         {"no JWT at all", "something", auth.Principal{}, auth.ErrInvalidToken},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// Each token with a wrong key triggers a fetch of new keys, which is rate-limited; a
			// separate authenticator has a separate limit.
			a := a
			if tc.err != nil {
				a = newIssuers(t, p.config())
			}
			got, err := a.Authenticate(t.Context(), "Bearer "+tc.token)
			wantErr(t, err, tc.err)
			wantPrincipal(t, tc.want, got)
		})
	}
}

func TestIssuerKeysAreRenewed(t *testing.T) {
	p := newProvider(t)
	first := rsaKey(t)
	p.publish("k1", &first.PublicKey)
	a := newIssuers(t, p.config())
	check := func(token string, want error) {
		t.Helper()
		_, err := a.Authenticate(t.Context(), "Bearer "+token)
		wantErr(t, err, want)
	}
	// A fetch publishes its keys a moment before the next fetch can begin. A verification in that
	// moment gets the old keys.
	settle := func(token string, want error) {
		t.Helper()
		for range 1000 {
			if _, err := a.Authenticate(t.Context(), "Bearer "+token); errors.Is(err, want) {
				return
			}
			runtime.Gosched()
		}
		check(token, want)
	}
	old := sign(t, jose.RS256, first, "k1", p.claims(nil))
	check(old, nil)
	check(old, nil)
	if n := p.fetches.Load(); n != 1 {
		t.Errorf("keys fetched %d times for two tokens", n)
	}

	second, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	fresh := sign(t, jose.ES256, second, "k2", p.claims(nil))
	check(fresh, auth.ErrInvalidToken)
	p.publish("k2", &second.PublicKey)
	settle(fresh, nil)
	check(old, nil)

	p.down.Store(true)
	check(fresh, nil)
	settle(sign(t, jose.RS256, first, "k3", p.claims(nil)), auth.ErrUnavailable)
	check(sign(t, jose.RS256, first, "k1", p.claims(map[string]any{"aud": "other"})), auth.ErrInvalidToken)
}

func TestIssuerDownAtTheStart(t *testing.T) {
	p := newProvider(t)
	key := rsaKey(t)
	p.publish("k1", &key.PublicKey)
	p.down.Store(true)
	a := newIssuers(t, p.config())
	token := sign(t, jose.RS256, key, "k1", p.claims(nil))
	_, err := a.Authenticate(t.Context(), "Bearer "+token)
	wantErr(t, err, auth.ErrUnavailable)

	p.down.Store(false)
	_, err = a.Authenticate(t.Context(), "Bearer "+token)
	wantErr(t, err, nil)
}

func TestForgedTokensDoNotFloodTheIssuer(t *testing.T) {
	p := newProvider(t)
	key := rsaKey(t)
	p.publish("k1", &key.PublicKey)
	a := newIssuers(t, p.config())
	forged := sign(t, jose.RS256, rsaKey(t), "k1", p.claims(nil))
	for range 50 {
		if _, err := a.Authenticate(t.Context(), "Bearer "+forged); err == nil {
			t.Fatal("a forged token was taken")
		}
	}
	if n := p.fetches.Load(); n > 10 {
		t.Errorf("50 forged tokens made %d fetches", n)
	}
	_, err := a.Authenticate(t.Context(), "Bearer "+sign(t, jose.RS256, key, "k1", p.claims(nil)))
	wantErr(t, err, nil)
}

func TestSeveralIssuersWithTheirClaims(t *testing.T) {
	red, blue := newProvider(t), newProvider(t)
	redKey, blueKey := rsaKey(t), rsaKey(t)
	red.publish("k", &redKey.PublicKey)
	blue.publish("k", &blueKey.PublicKey)
	own := blue.config()
	own.KeysURL = blue.server.URL + "/keys"
	own.TenantClaim, own.RolesClaim, own.SystemRole = "https://fleet.example.com/org", "realm_access.roles", "fleet-robot"
	own.ViewerRole, own.OperatorRole = "fleet-reader", "fleet-operator"
	a := newIssuers(t, red.config(), own)

	got, err := a.Authenticate(t.Context(), "Bearer "+sign(t, jose.RS256, redKey, "k", red.claims(nil)))
	wantErr(t, err, nil)
	wantPrincipal(t, auth.Principal{Subject: "alice", Tenant: "red"}, got)

	got, err = a.Authenticate(t.Context(), "Bearer "+sign(t, jose.RS256, blueKey, "k", blue.claims(map[string]any{
		"https://fleet.example.com/org": "blue", "realm_access": map[string]any{"roles": []string{"fleet-robot"}}, "roles": "system",
	})))
	wantErr(t, err, nil)
	wantPrincipal(t, auth.Principal{Subject: "alice", Tenant: "blue", Roles: []auth.Role{auth.System}}, got)

	got, err = a.Authenticate(t.Context(), "Bearer "+sign(t, jose.RS256, blueKey, "k", blue.claims(map[string]any{
		"realm_access": map[string]any{"roles": []string{"fleet-operator", "fleet-reader", "dev"}},
	})))
	wantErr(t, err, nil)
	wantPrincipal(t, auth.Principal{Subject: "alice", Roles: []auth.Role{auth.Viewer, auth.Operator}}, got)

	_, err = a.Authenticate(t.Context(), "Bearer "+sign(t, jose.RS256, blueKey, "k", red.claims(nil)))
	wantErr(t, err, auth.ErrInvalidToken) // one issuer does not vouch for another
}
