package hosts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/hosts"
)

// browser is a browser in which a person is signed in.
type browser struct {
	*fixture
	client *http.Client
	csrf   string
}

func (f *fixture) signIn(name string) *browser {
	f.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		f.Fatal(err)
	}
	b := &browser{fixture: f, client: &http.Client{Jar: jar, Transport: &http.Transport{}}}
	f.Cleanup(b.client.CloseIdleConnections)
	b.csrf = b.session().CSRF
	b.want(http.StatusNoContent, "POST", "console/demo", `{"user":"`+name+`"}`, nil)
	b.csrf = b.session().CSRF
	return b
}

type sessionBody struct {
	SignedIn bool                `json:"signed_in"`
	CSRF     string              `json:"csrf"`
	Hosts    []console.HostState `json:"hosts"`
}

func (b *browser) session() (s sessionBody) {
	b.Helper()
	b.want(http.StatusOK, "GET", "console/session", "", &s)
	return s
}

func (b *browser) do(method, path, body string) (status int, answer string) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("X-Csrf-Token", b.csrf)
	resp, err := b.client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (b *browser) want(status int, method, path, body string, into any) string {
	b.Helper()
	got, text := b.do(method, path, body)
	if got != status {
		b.Fatalf("%s %s = %d %s, want %d", method, path, got, text, status)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			b.Fatalf("%s %s = %s: %v", method, path, text, err)
		}
	}
	return text
}

// names lists the executions that the person sees in some namespaces.
func (b *browser) names(namespaces ...string) []string {
	b.Helper()
	var list struct {
		Items []hosts.Execution `json:"items"`
	}
	b.want(http.StatusOK, "GET", "console/hosts/demo/executions?limit=500", "", &list)
	var names []string
	for _, e := range list.Items {
		if slices.Contains(namespaces, e.Namespace) {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (b *browser) eventuallySees(want []string, namespaces ...string) {
	b.Helper()
	kubebedtest.Eventually(b, func(context.Context) error {
		if got := b.names(namespaces...); !slices.Equal(got, want) { //nolint:contextcheck // the requests have the context of the test
			return fmt.Errorf("sees %v, want %v", got, want)
		}
		return nil
	})
}
