package intake_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

// callerAddress is the address of callers.
const callerAddress = "192.0.2.1:4711"

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// A countingTransport counts requests, and can be closed.
type countingTransport struct {
	next   http.RoundTripper
	count  atomic.Int32
	closed atomic.Bool
}

func (r *countingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	r.count.Add(1)
	if r.closed.Load() {
		return nil, errors.New("closed")
	}
	return r.next.RoundTrip(req)
}

// newAuthenticator returns an authenticator that uses the API server.
func newAuthenticator(t *testing.T, change ...func(*intake.AuthConfig)) (*intake.Authenticator, *countingTransport) {
	t.Helper()
	r := &countingTransport{}
	rc := kubebedtest.Bed(t).Config()
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { r.next = next; return r })
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	cfg := intake.AuthConfig{Mode: intake.AuthModeCluster}
	for _, do := range change {
		do(&cfg)
	}
	g, err := intake.NewAuthenticator(cfg, intake.AuthDeps{ListenAddr: "0.0.0.0:8080", Client: client, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return g, r
}

// newToken returns a token of a service account that may create NodeFaults, or may not.
func newToken(t *testing.T, may bool, audiences ...string) (name, token string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	ns := kubebedtest.Namespace(t)
	if may {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: ns}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"fleetloop.io"}, Resources: []string{"nodefaults"}, Verbs: []string{"create"},
		}}}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: ns}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ns},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "default"}},
		}
		_, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
		_, err2 := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			err := errors.Join(client.RbacV1().ClusterRoles().Delete(ctx, ns, metav1.DeleteOptions{}), client.RbacV1().ClusterRoleBindings().Delete(ctx, ns, metav1.DeleteOptions{}))
			if err != nil {
				t.Error(err)
			}
		})
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	answer, err := client.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "default", request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return "system:serviceaccount:" + ns + ":default", answer.Status.Token
}

func TestClusterTokens(t *testing.T) {
	name, token := newToken(t, true)
	g, r := newAuthenticator(t)
	kubebedtest.Eventually(t, func(ctx context.Context) error { // until the API server has applied the role
		g, _ := newAuthenticator(t)
		_, err := g.Authenticate(ctx, "Bearer "+token, callerAddress)
		return err
	})
	for range 3 {
		caller, err := g.Authenticate(t.Context(), "Bearer "+token, callerAddress)
		if err != nil || caller != name {
			t.Errorf("got %q, %v, want %q", caller, err, name)
		}
	}
	if got := r.count.Load(); got != 2 {
		t.Errorf("%d requests, want one for the token and one for the right", got)
	}
	_, other := newToken(t, false)
	_, err := g.Authenticate(t.Context(), "Bearer "+other, callerAddress)
	wantErr(t, err, intake.ErrForbidden)
	for range 3 {
		_, err = g.Authenticate(t.Context(), "Bearer made-up", callerAddress)
		wantErr(t, err, intake.ErrInvalidToken)
	}
	if got := r.count.Load(); got != 5 {
		t.Errorf("%d requests, want 3 more: what was said of a bad token is believed, too", got)
	}
	for _, header := range []string{"", "Bearer ", "Basic " + token} {
		_, err = g.Authenticate(t.Context(), header, callerAddress)
		wantErr(t, err, intake.ErrNoToken)
	}
}

func TestTokenAudiences(t *testing.T) {
	_, ours := newToken(t, false, "fleetloop")
	_, another := newToken(t, false)
	g, _ := newAuthenticator(t, func(c *intake.AuthConfig) { c.Audiences = []string{"fleetloop"} })
	_, err := g.Authenticate(t.Context(), "Bearer "+ours, callerAddress)
	wantErr(t, err, intake.ErrForbidden) // authenticated, but not authorized
	_, err = g.Authenticate(t.Context(), "Bearer "+another, callerAddress)
	wantErr(t, err, intake.ErrInvalidToken)
}

func TestTokenReviewOutage(t *testing.T) {
	g, r := newAuthenticator(t)
	r.closed.Store(true)
	_, err := g.Authenticate(t.Context(), "Bearer made-up", callerAddress)
	wantErr(t, err, intake.ErrAuthUnavailable)
	r.closed.Store(false)
	_, err = g.Authenticate(t.Context(), "Bearer made-up", callerAddress)
	wantErr(t, err, intake.ErrInvalidToken) // an outage is not cached
}

// TestInvalidTokenFlood verifies that the reviews of invalid tokens are limited.
func TestInvalidTokenFlood(t *testing.T) {
	g, r := newAuthenticator(t)
	began := time.Now()
	var asking sync.WaitGroup
	for i := range 400 {
		asking.Go(func() {
			_, err := g.Authenticate(t.Context(), fmt.Sprintf("Bearer made-up-%d", i), fmt.Sprintf("192.0.2.%d:1", i))
			if !errors.Is(err, intake.ErrInvalidToken) && !errors.Is(err, intake.ErrAuthUnavailable) {
				t.Errorf("got %v", err)
			}
		})
	}
	asking.Wait()
	if got, most := int(r.count.Load()), 41+int(20*time.Since(began).Seconds()); got > most {
		t.Errorf("%d requests, want %d at most", got, most)
	}
}

// TestInvalidTokenFloodOfOneAddress verifies that a flood of invalid tokens affects only callers
// from the same address whose token is unknown.
func TestInvalidTokenFloodOfOneAddress(t *testing.T) {
	_, token := newToken(t, false)
	_, shared := newToken(t, false)
	g, r := newAuthenticator(t)
	ask := func(token, address string) error {
		_, err := g.Authenticate(t.Context(), "Bearer "+token, address)
		return err
	}
	wantErr(t, ask(token, "192.0.2.1:1"), intake.ErrForbidden) // cached from now on
	began, refused := time.Now(), 0
	for i := range 200 {
		err := ask(fmt.Sprintf("made-up-%d", i), fmt.Sprintf("192.0.2.1:%d", 1+i))
		if errors.Is(err, intake.ErrTooManyInvalidTokens) {
			refused++
		} else {
			wantErr(t, err, intake.ErrInvalidToken)
		}
	}
	took := time.Since(began).Seconds()
	if got, most := int(r.count.Load()), 2+20+1+int(4*took); got > most {
		t.Errorf("%d requests from one address, want %d at most", got, most)
	}
	if refused < 200-21-int(4*took) {
		t.Errorf("%d of 200 were refused", refused)
	}
	wantErr(t, ask(token, "192.0.2.1:2"), intake.ErrForbidden)
	wantErr(t, ask("another", "192.0.2.2:1"), intake.ErrInvalidToken)
	wantErr(t, ask("yet another", "[2001:db8::1]:1"), intake.ErrInvalidToken)

	// A caller with a shared token is not affected by others who use it from the address
	// of the flood.
	var asking sync.WaitGroup
	for i := range 40 {
		asking.Go(func() {
			if i%2 == 0 {
				if err := ask(shared, "192.0.2.1:9"); !errors.Is(err, intake.ErrTooManyInvalidTokens) && !errors.Is(err, intake.ErrForbidden) {
					t.Errorf("from where the flood comes: %v", err)
				}
				return
			}
			wantErr(t, ask(shared, "192.0.2.3:9"), intake.ErrForbidden)
		})
	}
	asking.Wait()
}

// writeTokenFile replaces the file atomically, like the volume of a Secret.
func writeTokenFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestTokenFile(t *testing.T) {
	var logs bytes.Buffer
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	writeTokenFile(t, path, fmt.Sprintf("tokens: [{token: first-token, subject: alertmanager}, {sha256: %x, subject: monitor}]", sha256.Sum256([]byte("second-token"))))
	g, err := intake.NewAuthenticator(intake.AuthConfig{Mode: intake.AuthModeFile, TokenFile: path}, intake.AuthDeps{ListenAddr: "0.0.0.0:1", Log: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	check := func(token, subject string) {
		t.Helper()
		got, err := g.Authenticate(t.Context(), "bearer "+token, callerAddress)
		if got != subject || (subject == "") != errors.Is(err, intake.ErrInvalidToken) {
			t.Errorf("token %q: got %q, %v, want %q", token, got, err, subject)
		}
	}
	check("first-token", "alertmanager")
	check("second-token", "monitor")
	check("third-token", "")
	writeTokenFile(t, path, "tokens: [{token: third-token, subject: other}]")
	check("first-token", "")
	check("third-token", "other")
	writeTokenFile(t, path, "tokens: [{token: s3cret, subject")
	check("third-token", "other")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check("third-token", "other")
	check("third-token", "other")
	if text := logs.String(); !strings.Contains(text, "token file unreadable") || strings.Count(text, "token file deleted") != 1 || strings.Contains(text, "s3cret") {
		t.Errorf("logged:\n%s", text)
	}
}

func TestTokenFileBesideCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	writeTokenFile(t, path, "tokens: [{token: first-token, subject: alertmanager}]")
	g, r := newAuthenticator(t, func(c *intake.AuthConfig) { c.TokenFile = path })
	if got, err := g.Authenticate(t.Context(), "Bearer first-token", callerAddress); got != "alertmanager" || err != nil || r.count.Load() != 0 {
		t.Errorf("got %q, %v after %d requests", got, err, r.count.Load())
	}
	_, err := g.Authenticate(t.Context(), "Bearer another", callerAddress)
	wantErr(t, err, intake.ErrInvalidToken)
}

func TestNewAuthenticatorRefuses(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	cases := map[string]struct {
		reason, content string
		cfg             intake.AuthConfig
		addr, says      string
	}{
		"NoneForTheWorld": {reason: "everybody could cordon nodes", cfg: intake.AuthConfig{Mode: intake.AuthModeNone}, addr: ":8080", says: "loopback"},
		"NoneWithTokens":  {reason: "a file that nobody reads", cfg: intake.AuthConfig{Mode: intake.AuthModeNone, TokenFile: "/x"}, addr: "127.0.0.1:1", says: "but a token file is set"},
		"NoCluster":       {reason: "nobody to ask", cfg: intake.AuthConfig{Mode: intake.AuthModeCluster}, says: "requires a Kubernetes cluster"},
		"NoFile":          {reason: "nobody could get in", cfg: intake.AuthConfig{Mode: intake.AuthModeFile}, says: "requires a token file"},
		"FileAway":        {reason: "it must be there at the start", cfg: intake.AuthConfig{Mode: intake.AuthModeFile, TokenFile: "/nowhere"}, says: "/nowhere"},
		"UnknownMode":     {reason: "the set is closed", cfg: intake.AuthConfig{Mode: "basic"}, says: `"basic"`},
		"BothForms":       {reason: "which of the two counts?", content: "tokens: [{token: s3cret, sha256: " + hash + ", subject: a}]", says: "exactly one of token and sha256"},
		"ShortHash":       {reason: "no hash", content: "tokens: [{sha256: abcd, subject: a}]", says: "64 hexadecimal"},
		"SameTwice":       {reason: "whose is it?", content: "tokens: [{token: s3cret, subject: a}, {token: s3cret, subject: b}]", says: `tokens[1] (subject "b")`},
		"NoSubject":       {reason: "whose is it?", content: "tokens: [{token: s3cret}]", says: "subject"},
		"BadSubject":      {reason: "it would break logs", content: `tokens: [{token: s3cret, subject: "a\nb"}]`, says: "printable"},
		"UnknownKey":      {reason: "a slip would go unseen", content: "tokens: [{token: s3cret, subject: a, admin: true}]", says: "admin"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.content != "" {
				tc.cfg = intake.AuthConfig{Mode: intake.AuthModeFile, TokenFile: filepath.Join(t.TempDir(), "tokens.yaml")}
				writeTokenFile(t, tc.cfg.TokenFile, tc.content)
			}
			_, err := intake.NewAuthenticator(tc.cfg, intake.AuthDeps{ListenAddr: tc.addr, Log: quiet()})
			if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: got %v, want an error that says %q and no token", tc.reason, err, tc.says)
			}
		})
	}
	if _, err := intake.NewAuthenticator(intake.AuthConfig{Mode: intake.AuthModeNone}, intake.AuthDeps{ListenAddr: "127.0.0.1:8080", OtherAddr: "0.0.0.0:50051"}); err == nil || !strings.Contains(err.Error(), "0.0.0.0:50051") {
		t.Errorf("everybody could cordon nodes by gRPC: %v", err)
	}
	g, err := intake.NewAuthenticator(intake.AuthConfig{Mode: intake.AuthModeNone}, intake.AuthDeps{ListenAddr: "127.0.0.1:8080", OtherAddr: "localhost:50051"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Authenticate(t.Context(), "", callerAddress); err != nil {
		t.Errorf("on loopback: %v", err)
	}
}
