package auth_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
)

// write replaces the file like a secret's volume: the new file is moved over the old.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func newTokens(t *testing.T, path string, log *slog.Logger) (*auth.Authenticator, error) {
	t.Helper()
	return auth.New(auth.Config{Mode: auth.ModeBearer, TokenFile: path}, auth.Deps{ListenAddr: "0.0.0.0:8000", Log: log})
}

func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, fmt.Sprintf(`
tokens:
- {token: alice-token, subject: alice, tenant: red}
- {sha256: %x, subject: sentinel, roles: [system]}
`, sha256.Sum256([]byte("sentinel-token"))))
	a, err := newTokens(t, path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	cases := map[string]struct {
		header string
		want   auth.Principal
		err    error
	}{
		"Plain":       {"Bearer alice-token", auth.Principal{Subject: "alice", Tenant: "red"}, nil},
		"Hashed":      {"Bearer sentinel-token", auth.Principal{Subject: "sentinel", Roles: []auth.Role{auth.System}}, nil},
		"LowerCase":   {"bearer alice-token", auth.Principal{Subject: "alice", Tenant: "red"}, nil},
		"None":        {"", auth.Principal{}, auth.ErrNoToken},
		"Empty":       {"Bearer ", auth.Principal{}, auth.ErrNoToken},
		"OtherScheme": {"Basic alice-token", auth.Principal{}, auth.ErrNoToken},
		"Prefix":      {"Bearer alice-toke", auth.Principal{}, auth.ErrInvalidToken},
		"Longer":      {"Bearer alice-token2", auth.Principal{}, auth.ErrInvalidToken},
		"TheHash":     {fmt.Sprintf("Bearer %x", sha256.Sum256([]byte("sentinel-token"))), auth.Principal{}, auth.ErrInvalidToken},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := a.Authenticate(t.Context(), tc.header)
			wantErr(t, err, tc.err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTokenRotation(t *testing.T) {
	var logs bytes.Buffer
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, "tokens: [{token: first-token, subject: a, tenant: red}]")
	a, err := newTokens(t, path, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	check := func(token string, want error) {
		t.Helper()
		_, err := a.Authenticate(t.Context(), "Bearer "+token)
		wantErr(t, err, want)
	}
	check("first-token", nil)

	write(t, path, "tokens: [{token: other-token, subject: a, tenant: red}]") // of the same size
	check("first-token", auth.ErrInvalidToken)
	check("other-token", nil)

	write(t, path, "tokens: [{token: third-token, subject")
	check("other-token", nil)
	if !strings.Contains(logs.String(), "unreadable") {
		t.Errorf("a broken file is not in the log:\n%s", &logs)
	}
	if strings.Contains(logs.String(), "third-token") {
		t.Error("a token is in the log")
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check("other-token", nil)
	check("other-token", nil)
	if n := strings.Count(logs.String(), "file deleted"); n != 1 {
		t.Errorf("a file that is gone is logged %d times", n)
	}

	write(t, path, "")
	check("other-token", auth.ErrInvalidToken)
}

func TestTokenFileRefuses(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	cases := map[string]struct{ content, says string }{
		"NotYAML":       {"[", "not valid YAML"},
		"NoList":        {"token: x", `unknown key "token"`},
		"TwoDocuments":  {"[]\n---\n[{token: s3cret, subject: a, tenant: t}]", "second YAML document"},
		"UnknownKey":    {"tokens: [{token: s3cret, subject: a, tenant: t, admin: true}]", `unknown key "tokens[0].admin"`},
		"NoToken":       {"tokens: [{subject: a, tenant: t}]", "one of token and sha256"},
		"BothForms":     {"tokens: [{token: s3cret, sha256: " + hash + ", subject: a, tenant: t}]", "exactly one of"},
		"ShortHash":     {"tokens: [{sha256: abcd, subject: a, tenant: t}]", "64 hexadecimal"},
		"NoHash":        {"tokens: [{sha256: " + strings.Repeat("xy", 32) + ", subject: a, tenant: t}]", "64 hexadecimal"},
		"NoSubject":     {"tokens: [{token: s3cret, tenant: t}]", "subject"},
		"BadSubject":    {`tokens: [{token: s3cret, subject: "a\nb", tenant: t}]`, "printable"},
		"NoTenant":      {"tokens: [{token: s3cret, subject: a}]", "must have a tenant"},
		"BadTenant":     {`tokens: [{token: s3cret, subject: a, tenant: "\0"}]`, "tenant must be"},
		"UnknownRole":   {"tokens: [{token: s3cret, subject: a, tenant: t, roles: [root]}]", "must be one of system, viewer, operator"},
		"SameTwice":     {"tokens: [{token: s3cret, subject: a, tenant: t}, {token: s3cret, subject: b, tenant: u}]", `tokens[1] (subject "b")`},
		"LargerThanAny": {strings.Repeat("#", 1<<20+1), "more than 1048576 bytes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens.yaml")
			write(t, path, tc.content)
			_, err := newTokens(t, path, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("got %v, want an error that says %q", err, tc.says)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error holds a token: %v", err)
			}
		})
	}
}
