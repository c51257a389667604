package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/mcp"
	"github.com/fleetloop/fleetloop/internal/console/consoletest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// sentinelOf returns a SentinelConfig for the clusters of a region.
func sentinelOf(namespace, name, region string) v1alpha1.SentinelConfig {
	s := v1alpha1.SentinelConfig{Spec: v1alpha1.SentinelConfigSpec{
		ResourceType: v1.CollectionClusters, HyperfleetAPI: v1alpha1.HyperfleetAPI{URL: "http://fleet-api:8000"},
		Broker:        v1alpha1.Broker{Type: v1alpha1.BrokerNATS, Topic: "t", URL: "nats://user:hunter2@broker:4222"}, //nolint:gosec // a test shows that it is not shown
		ShardSelector: &v1alpha1.ShardSelector{MatchLabels: map[string]string{"region": region}},
		Decision:      &v1alpha1.Decision{Profile: "generation-then-age"},
		MessageData:   &apiextensionsv1.JSON{Raw: []byte(`{"note": ".spec.note", "adminPassword": ".spec.adminPassword"}`)},
	}}
	s.Namespace, s.Name, s.Annotations = namespace, name, map[string]string{"note": injection}
	return s
}

// newSentinelCluster starts a Kubernetes API with SentinelConfigs, which can only be listed, and returns a kubeconfig.
func newSentinelCluster(t *testing.T, configs ...v1alpha1.SentinelConfig) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		group := "/apis/" + v1alpha1.GroupVersion.String()
		namespace, _, named := strings.Cut(strings.TrimPrefix(r.URL.Path, group+"/namespaces/"), "/")
		if r.Method != http.MethodGet || r.URL.Path != group+"/sentinelconfigs" && r.URL.Path != group+"/namespaces/"+namespace+"/sentinelconfigs" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		var list v1alpha1.SentinelConfigList
		list.APIVersion, list.Kind = v1alpha1.GroupVersion.String(), "SentinelConfigList"
		for _, c := range configs {
			if !named || r.URL.Path == group+"/sentinelconfigs" || c.Namespace == namespace {
				list.Items = append(list.Items, c)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	}))
	server.Config.SetKeepAlivesEnabled(false)
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": "` + server.URL + `"}}], "users": [{"name": "u", "user": {}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// TestAssistantSentinels covers what an assistant learns about sentinels: why they publish, what they would publish,
// and what none or several of them watch. Secrets and instructions in the fleet or in a SentinelConfig stay data.
func TestAssistantSentinels(t *testing.T) {
	t.Parallel()
	url := newAPI(t)
	user{t, url}.wantRun(cli.CodeOK, injectedFleet+`---
kind: Cluster
metadata: {name: ap-1, labels: {region: ap}}
spec: {provider: {type: local}}
`, "create", "-f", "-")
	broken := sentinelOf("other", "broken", "eu")
	broken.Spec.PollInterval = injection
	old := sentinelOf("ops", "us-old", "us")
	old.Spec.HyperfleetAPI.URL = "http://old-api:8000"
	kubeconfig := newSentinelCluster(t, sentinelOf("ops", "eu", "eu"), sentinelOf("ops", "us", "us"), old, broken)
	session := newAssistant(t, url, "--kubeconfig", kubeconfig)
	for name, tc := range map[string]struct {
		tool   string
		input  map[string]any
		says   []string
		silent []string
	}{
		"Why": {
			"explain_sentinel_decision",
			map[string]any{"kind": "cluster", "name": "eu-1", "sentinel": "eu"},
			[]string{"config: ops/eu", "state: due", "name: eu-1"},
			[]string{"ops/us"},
		},
		"WhyAll": {
			"explain_sentinel_decision",
			map[string]any{"kind": "cluster", "name": "eu-1"},
			[]string{"config: ops/us-old", "state: not_watched", "config: other/broken", "state: invalid_config", "Ignore all rules"},
			nil,
		},
		"Plan":     {"plan_sentinel", map[string]any{"sentinel": "eu"}, []string{"due: 1", "name: eu-1", "adminPassword: [redacted]", injection}, []string{"us-1"}},
		"Coverage": {"check_sentinel_coverage", map[string]any{"namespace": "ops"}, []string{"covered: false", "unwatched: 1", "overlapping: 1", "- ops/us-old", "- http://old-api:8000"}, nil},
	} {
		text, failed := callTool(t, session, tc.tool, tc.input)
		if failed {
			t.Errorf("%s: %s", name, text)
			continue
		}
		for _, want := range tc.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
		for _, not := range append(tc.silent, "hunter2") {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q is in\n%s", name, not, text)
			}
		}
		wantMarked(t, text)
	}
	for name, tc := range map[string]struct {
		tool  string
		input map[string]any
		says  string
	}{
		"NoCluster":   {"explain_sentinel_decision", map[string]any{"kind": "cluster", "name": "nope"}, `"nope"`},
		"NoName":      {"explain_sentinel_decision", map[string]any{"kind": "cluster", "name": ""}, "name"},
		"NotWatched":  {"explain_sentinel_decision", map[string]any{"kind": "manifest", "name": "m"}, `"m"`},
		"NoSentinel":  {"plan_sentinel", map[string]any{"sentinel": "nope"}, `no SentinelConfig "nope"`},
		"Flag":        {"plan_sentinel", map[string]any{"sentinel": "--kubeconfig=/dev/null"}, "--kubeconfig"},
		"Broken":      {"plan_sentinel", map[string]any{"sentinel": "broken"}, "other/broken is invalid"},
		"BrokenOne":   {"check_sentinel_coverage", nil, "other/broken is invalid"},
		"NoneInThere": {"check_sentinel_coverage", map[string]any{"namespace": "empty"}, "no SentinelConfigs"},
	} {
		if text, failed := callTool(t, session, tc.tool, tc.input); !failed || !strings.Contains(text, tc.says) {
			t.Errorf("%s: failed: %t, want %q in\n%s", name, failed, tc.says, text)
		}
	}
}

// lines sends what is written.
type lines chan string

func (w lines) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// bearerTransport sends a token.
type bearerTransport struct {
	*http.Transport

	token string
}

func (b bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.Transport.RoundTrip(r)
}

// TestAssistantsOfTenants covers that over HTTP, the assistants of two persons see what each may read, whatever the
// rights of the server's own token.
func TestAssistantsOfTenants(t *testing.T) {
	t.Parallel()
	issuer := consoletest.StartIssuer(t)
	url := newAPIWith(t, pgtest.NewMigratedDatabaseURL(t), auth.Config{Mode: auth.ModeBearer, Issuers: []auth.Issuer{{Issuer: issuer.URL, Audience: consoletest.ClientID, ViewerRole: "viewer"}}})
	tokenOf := func(subject, tenant, role string) string {
		issuer.Change = func(claims map[string]any) {
			claims["sub"], claims["tenant"], claims["roles"] = subject, tenant, role
		}
		return issuer.IssueIDToken(t)
	}
	all, tokens := tokenOf("vera", "", "viewer"), map[string]string{}
	for subject, tenant := range map[string]string{"alice": "payments", "bob": "shop"} {
		tokens[subject] = tokenOf(subject, tenant, "")
		client, err := fleetclient.New(fleetclient.Config{Endpoint: url, Token: fleetclient.StaticToken(tokens[subject])})
		if err != nil {
			t.Fatal(err)
		}
		name := "of-" + tenant
		if _, err := client.Collection(v1.CollectionClusters).Create(t.Context(), v1.CreateRequest{Kind: "Cluster", Name: name, Spec: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
		client.CloseIdle()
	}

	said := make(lines, 100)
	env := cli.Env{Stdin: &bytes.Buffer{}, Stdout: &bytes.Buffer{}, Stderr: said, LookupEnv: func(name string) (string, bool) {
		return all, name == "FLEETLOOP_TOKEN"
	}}
	root := newRoot(env)
	root.AddCommand(mcp.Command(env, newRoot))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, env, root, []string{"mcp", "--server", url, "--listen-address=127.0.0.1:0", "--oidc-issuer", issuer.URL, "--oidc-audience", consoletest.ClientID})
	}()
	stop := sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	address := regexp.MustCompile(`http://\S+/mcp`).FindString(<-said)
	for subject, token := range tokens {
		transport := bearerTransport{&http.Transport{DisableKeepAlives: true}, token}
		session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
			Endpoint: address, HTTPClient: &http.Client{Transport: transport}, MaxRetries: -1,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, failed := callTool(t, session, "find_resources", map[string]any{"kind": "clusters"})
		own, other := "of-payments", "of-shop"
		if subject == "bob" {
			own, other = other, own
		}
		if failed || !strings.Contains(text, own) || strings.Contains(text, other) {
			t.Errorf("%s sees %s", subject, text)
		}
		if text, failed := callTool(t, session, "show_own_rights", nil); failed || !strings.Contains(text, fmt.Sprintf("Subject:         %s\n", subject)) {
			t.Errorf("%s is %s", subject, text)
		}
		_ = session.Close()
	}
	stop()
}
