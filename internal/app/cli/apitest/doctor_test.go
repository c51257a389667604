package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/console/consoletest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// wantFindings verifies that doctor finds these problems, and no others. Each problem has a reason and a fix.
func (p *person) wantFindings(code int, args []string, want ...string) {
	p.Helper()
	text := p.runs(code, "", append(args, "doctor", "-o", "json")...)
	var got struct {
		Findings []struct{ Level, Object, What, Why, Fix string }
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		p.Fatalf("%v in %s", err, text)
	}
	var problems []string
	for _, f := range got.Findings {
		if f.Level == "ok" || f.Level == "note" {
			continue
		}
		if f.Why == "" || f.Fix == "" || f.Object == "" {
			p.Errorf("%+v does not say why or what to do", f)
		}
		problems = append(problems, fmt.Sprintf("%s %s: %s; %s", f.Level, f.Object, f.What, f.Fix))
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(problems, "\n"), w) {
			p.Errorf("no %q in\n%s", w, text)
		}
	}
	if len(problems) != len(want) {
		p.Errorf("%d problems, want %d: %q", len(problems), len(want), problems)
	}
}

// newProxy starts a proxy of a fleet API that changes the headers of its responses, and returns its URL.
func newProxy(t *testing.T, target string, change func(http.Header)) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Transport:      &http.Transport{DisableKeepAlives: true},
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error { change(r.Header); return nil },
	})
	t.Cleanup(server.Close)
	return server.URL
}

// TestDoctor covers a healthy setup, and one problem after another on a real API.
func TestDoctor(t *testing.T) {
	t.Parallel()
	issuer, server := newIssuerAPI(t)
	p := newPerson(t)
	p.browser = visit(t, issuer)
	p.env["FLEETLOOP_OIDC_ISSUER"], p.env["FLEETLOOP_OIDC_CLIENT_ID"], p.env["FLEETLOOP_SERVER"] = issuer.URL, consoletest.ClientID, server

	p.wantFindings(cli.CodeFailed, nil, "error "+server+": GET /api/hyperfleet/v1/whoami: 401")
	p.runs(cli.CodeOK, "", "login")
	p.wantFindings(cli.CodeOK, nil)
	p.sees(p.runs(cli.CodeOK, "", "doctor"), "ok       "+server+": fleet-api dev answers \"alice\"", "clusters: you may get, list, create, patch and delete them")

	file := p.file("config.credentials.json")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	p.wantFindings(cli.CodeOK, nil, "warning "+file+": other users may read it (mode 0644); chmod 600 "+file)
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	p.wantFindings(cli.CodeFailed, []string{"--server", "http://127.0.0.1:1"}, "fleet API unreachable")

	ahead := newProxy(t, server, func(h http.Header) { h.Set("Date", time.Now().Add(2*time.Minute).UTC().Format(http.TimeFormat)) })
	p.runs(cli.CodeOK, "", "login", "--server", ahead)
	p.wantFindings(cli.CodeOK, []string{"--server", ahead}, "its clock and that of this machine differ by ")

	issuer.Life = time.Minute // and no refresh token
	token := writeFile(t, "token", issuer.IssueIDToken(t))
	p.wantFindings(cli.CodeOK, []string{"--token-file", token}, "it expires in ")
	issuer.Life = -time.Minute
	expired := writeFile(t, "token", issuer.IssueIDToken(t))
	p.wantFindings(cli.CodeFailed, []string{"--token-file", expired}, "401", "it expired at ")
}

// TestDoctorOnWeakServer covers a server without authentication, and a caller who may see nothing.
func TestDoctorOnWeakServer(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	p.env["FLEETLOOP_SERVER"] = newAPI(t)
	p.wantFindings(cli.CodeOK, nil, "the server does not authenticate requests; start fleet-api with --auth-mode=bearer")

	tokens := writeFile(t, "tokens.yaml", "tokens:\n- {token: vera-token, subject: vera, roles: [viewer]}\n- {token: nobody-token, subject: nobody, roles: [system]}\n")
	p.env["FLEETLOOP_SERVER"] = newAPIWith(t, pgtest.NewMigratedDatabaseURL(t), auth.Config{Mode: auth.ModeBearer, TokenFile: tokens})
	p.env["FLEETLOOP_TOKEN"] = "vera-token"
	p.wantFindings(cli.CodeOK, nil)
	p.sees(p.runs(cli.CodeOK, "", "doctor"), "note     clusters: you may not create, patch, delete them", "why: \"vera\" has the role viewer", "fix: if you need it, ask an administrator for a tenant or the role operator")
	p.runs(cli.CodeUsage, "", "doctor", "-o", "xml")
	p.env["KUBECONFIG"] = filepath.Join(t.TempDir(), "none")
	p.wantFindings(cli.CodeFailed, nil, "error host cluster: ")
}
