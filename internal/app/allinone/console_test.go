package allinone_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/console/hosts"
)

// browser is a browser with the page of a console.
type browser struct {
	t      *testing.T
	client *http.Client
	base   string
	csrf   string
}

// openConsole opens the console of a run.
func (r *run) openConsole(t *testing.T) *browser {
	t.Helper()
	url, ok := r.waitForLine(t, "console ready", nil)["url"].(string)
	if !ok {
		t.Fatal("the log does not have the URL of the console")
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, base: url, client: &http.Client{Jar: jar, Transport: &http.Transport{}}}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

// call sends a request of the page and reads its answer into a value, if there is one.
func (b *browser) call(method, path, body string, want int, into any) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("X-Csrf-Token", b.csrf)
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		b.t.Fatalf("%s %s = %d %s, %v; want %d", method, path, resp.StatusCode, text, err, want)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			b.t.Fatalf("%s %s = %s: %v", method, path, text, err)
		}
	}
}

// signIn chooses a person of the demo.
func (b *browser) signIn(name string) {
	b.t.Helper()
	var s struct {
		CSRF string `json:"csrf"`
	}
	b.call("GET", "console/session", "", http.StatusOK, &s)
	b.csrf = s.CSRF
	b.call("POST", "console/demo", `{"user":"`+name+`"}`, http.StatusNoContent, nil)
	b.call("GET", "console/session", "", http.StatusOK, &s)
	b.csrf = s.CSRF
}

// TestConsole covers the console of "fleetloop up": its page, the choice of a person, and the fleet
// API behind it.
func TestConsole(t *testing.T) {
	t.Parallel()
	r := startProgram(t, nil, "--adapters=false")
	b := r.openConsole(t)
	b.call("GET", "clusters", "", http.StatusOK, nil)
	b.call("GET", "api/hyperfleet/v1/clusters", "", http.StatusUnauthorized, nil)
	b.signIn("alice")
	var made struct {
		Name      string `json:"name"`
		CreatedBy string `json:"created_by"`
	}
	b.call("POST", "api/hyperfleet/v1/clusters", `{"name":"cluster-1","spec":{}}`, http.StatusCreated, &made)
	if made.Name != "cluster-1" || made.CreatedBy != "alice" {
		t.Errorf("created %+v", made)
	}
	r.stopProgram(t)
}

// wantHostInConsole covers the embedded host cluster in the console: it accepts the persons of the
// demo, and shows each what that one may read.
func (r *run) wantHostInConsole(t *testing.T, cluster string) {
	t.Helper()
	for name, nodes := range map[string]int{"bob": http.StatusForbidden, "admin": http.StatusOK} {
		b := r.openConsole(t)
		b.signIn(name)
		var s struct {
			Hosts []struct {
				Name   string `json:"name"`
				Writes bool   `json:"writes"`
			} `json:"hosts"`
		}
		b.call("GET", "console/session", "", http.StatusOK, &s)
		if len(s.Hosts) != 1 || s.Hosts[0].Name != "local" || !s.Hosts[0].Writes {
			t.Errorf("%s sees the host clusters %+v", name, s.Hosts)
		}
		b.call("GET", "console/hosts/local/executions", "", http.StatusOK, nil)
		b.call("GET", "console/hosts/local/nodes", "", nodes, nil)
		var sentinels struct {
			Items []any `json:"items"`
		}
		b.call("GET", "console/hosts/local/sentinels", "", http.StatusOK, &sentinels)
		if (len(sentinels.Items) > 0) != (name == "admin") {
			t.Errorf("%s sees %d sentinels", name, len(sentinels.Items))
		}
		var decisions struct {
			Items []hosts.Decision `json:"items"`
		}
		b.call("GET", "console/hosts/local/decisions?collection=clusters&id="+cluster, "", http.StatusOK, &decisions)
		if (len(decisions.Items) > 0) != (name == "admin") {
			t.Errorf("%s sees %d decisions", name, len(decisions.Items))
		}
		for _, d := range decisions.Items {
			if d.State != "waiting" && d.State != "due" || d.Inputs == nil || d.Inputs.Generation != 1 {
				t.Errorf("the decision about %s is %+v", cluster, d)
			}
		}
	}
}
