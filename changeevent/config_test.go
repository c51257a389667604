package changeevent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestConfigIsRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*Config)
		want   string
	}{
		"NoEndpoint":     {"it says what is missing", func(c *Config) { c.Endpoint = "" }, "Endpoint"},
		"NoCluster":      {"it says what is missing", func(c *Config) { c.ClusterName = "" }, "ClusterName is required"},
		"ClusterDot":     {"a dot survives escaping and is dropped from paths", func(c *Config) { c.ClusterName = "." }, "ClusterName"},
		"ClusterDots":    {"two climb out of the path", func(c *Config) { c.ClusterName = ".." }, "ClusterName"},
		"BadEndpoint":    {"it would fail at each event", func(c *Config) { c.Endpoint = "::bad" }, "not a valid URL"},
		"NoHost":         {"it would fail at each event", func(c *Config) { c.Endpoint = "https:///changes" }, "no host"},
		"NoScheme":       {"it would fail at each event", func(c *Config) { c.Endpoint = "events.example.com/changes" }, "must begin with https"},
		"FileScheme":     {"events go to a sink", func(c *Config) { c.Endpoint = "file:///etc/passwd" }, "must begin with https"},
		"PlainHTTP":      {"a token would be readable on the way", func(c *Config) { c.Endpoint = "http://events.example.com" }, "AllowHTTP"},
		"User":           {"a password belongs into a Secret", func(c *Config) { c.Endpoint = "https://u:hunter2@events.example.com" }, "user"},
		"Fragment":       {"it would get lost", func(c *Config) { c.Endpoint = "https://events.example.com/#x" }, "fragment"},
		"BothEndpoints":  {"which one would it be", func(c *Config) { c.EndpointFile = "x" }, "one of"},
		"BothTokens":     {"which one would it be", func(c *Config) { c.AuthToken, c.AuthTokenFile = "a", "b" }, "remove one of them"},
		"BothKeys":       {"which one would it be", func(c *Config) { c.RoutingKey, c.RoutingKeyFile = "a", "b" }, "remove one of them"},
		"Timeout":        {"each request would fail at once", func(c *Config) { c.Timeout = -1 }, "Timeout"},
		"Shutdown":       {"Close would wait for nothing", func(c *Config) { c.ShutdownTimeout = -1 }, "ShutdownTimeout"},
		"Interval":       {"there is no such wait", func(c *Config) { c.Retry.InitialInterval = -1 }, "InitialInterval"},
		"Attempts":       {"there are none below zero", func(c *Config) { c.Retry.MaxAttempts = -1 }, "MaxAttempts"},
		"Concurrency":    {"connections are bounded", func(c *Config) { c.MaxConcurrentRequests = 65 }, "MaxConcurrentRequests"},
		"Queue":          {"memory is bounded", func(c *Config) { c.QueueSize = 1 << 20 }, "Queue"},
		"Format":         {"a misspelt format is not the default one", func(c *Config) { c.Format = "pagerdoody" }, "unknown"},
		"BatchWait":      {"there is no request for several", func(c *Config) { c.BatchWait = time.Second }, "BatchWait"},
		"Link":           {"it would be in no event", func(c *Config) { c.Links = []LinkTemplate{{Href: "javascript:x"}} }, "Links[0]"},
		"HeaderName":     {"a blank would end the name", func(c *Config) { c.AuthHeader, c.AuthToken = "X Key", "t" }, "AuthHeader"},
		"HeaderFraming":  {"it says how long a request is", func(c *Config) { c.AuthHeader, c.AuthToken = "content-length", "t" }, "AuthHeader"},
		"TokenLines":     {"the second line would be another header", func(c *Config) { c.AuthToken = "a\r\nX: y" }, "AuthToken"},
		"NoKey":          {"the format needs it", func(c *Config) { c.Format = FormatPagerDuty }, "RoutingKey"},
		"ShortKey":       {"it is no such key", func(c *Config) { c.Format, c.RoutingKey = FormatPagerDuty, "short" }, "key"},
		"TokenNowhere":   {"the format has no header for it", func(c *Config) { c.Format, c.AuthToken = FormatSlack, "t" }, "AuthHeader"},
		"Addresses":      {"a misspelt address allows nothing", func(c *Config) { c.HTTP, c.AllowAddresses = nil, []string{"10/8"} }, "AllowAddresses"},
		"Hosts":          {"a host without a port allows nothing", func(c *Config) { c.HTTP, c.AllowHosts = nil, []string{"fleet-api"} }, "AllowHosts"},
		"Proxy":          {"it is no proxy", func(c *Config) { c.HTTP, c.ProxyURL = nil, "proxy.example.com" }, "ProxyURL"},
		"PrivateAddress": {"each request would be refused", func(c *Config) { c.HTTP, c.Endpoint = nil, "https://10.1.2.3/" }, "10.1.2.3"},
		"Metadata":       {"each request would be refused", func(c *Config) { c.HTTP, c.Endpoint, c.AllowHTTP = nil, "http://169.254.169.254/", true }, "metadata"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := enabled(&script{})
			tc.change(&cfg)
			c, err := NewClient(cfg)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want an error with %q", tc.reason, err, tc.want)
			}
			if checked := Check(cfg); checked == nil || checked.Error() != err.Error() {
				t.Errorf("%s: Check() = %v, want %v", tc.reason, checked, err)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error tells the password: %v", err)
			}
			if c == nil {
				t.Fatal("an error comes with no client: want one that does nothing")
			}
			c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon})
			if err := c.Close(); err != nil {
				t.Errorf("Close of what does nothing: %v", err)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	cases := map[string]struct {
		reason string
		cfg    Config
		want   Config
	}{
		"JSON": {
			reason: "ten seconds for a request and for the end, as the decision record says",
			cfg:    Config{},
			want: Config{
				Name: "default", Source: SourceFaultQuarantine, Format: FormatJSON, Timeout: 10 * time.Second, ShutdownTimeout: 10 * time.Second,
				MaxConcurrentRequests: 4, QueueSize: 256, MaxAge: 12 * time.Hour,
				Retry: Retry{InitialInterval: time.Second, MaxInterval: 30 * time.Second, MaxElapsedTime: 5 * time.Minute},
			},
		},
		"Slack": {
			reason: "a channel takes a message per second, so there is one worker that gathers",
			cfg:    Config{Format: FormatSlack},
			want: Config{
				Name: "default", Source: SourceFaultQuarantine, Format: FormatSlack, Timeout: 10 * time.Second, ShutdownTimeout: 10 * time.Second,
				MaxConcurrentRequests: 1, QueueSize: 1024, MaxAge: 12 * time.Hour, BatchWait: time.Second,
				Retry: Retry{InitialInterval: time.Second, MaxInterval: 30 * time.Second, MaxElapsedTime: 5 * time.Minute},
			},
		},
		"Grafana": {
			reason: "the token of a service account is a bearer's",
			cfg:    Config{Format: FormatGrafana, AuthToken: "t", MaxConcurrentRequests: 2},
			want: Config{
				Name: "default", Source: SourceFaultQuarantine, Format: FormatGrafana, Timeout: 10 * time.Second, ShutdownTimeout: 10 * time.Second,
				AuthHeader: "Authorization", AuthScheme: "Bearer", AuthToken: "t",
				MaxConcurrentRequests: 2, QueueSize: 512, MaxAge: 12 * time.Hour,
				Retry: Retry{InitialInterval: time.Second, MaxInterval: 30 * time.Second, MaxElapsedTime: 5 * time.Minute},
			},
		},
		"Datadog": {
			reason: "its key has a header of its own",
			cfg:    Config{Format: FormatDatadog, AuthToken: "t", Timeout: time.Second, Retry: Retry{MaxAttempts: 1}},
			want: Config{
				Name: "default", Source: SourceFaultQuarantine, Format: FormatDatadog, Timeout: time.Second, ShutdownTimeout: 10 * time.Second,
				AuthHeader: "Dd-Api-Key", AuthToken: "t",
				MaxConcurrentRequests: 4, QueueSize: 256, MaxAge: 12 * time.Hour,
				Retry: Retry{MaxAttempts: 1, InitialInterval: time.Second, MaxInterval: 30 * time.Second, MaxElapsedTime: 5 * time.Minute},
			},
		},
		"PagerDuty": {
			reason: "where the credential is a part of the body, the token is that",
			cfg:    Config{Format: FormatPagerDuty, AuthToken: strings.Repeat("k", 32)},
			want: Config{
				Name: "default", Source: SourceFaultQuarantine, Format: FormatPagerDuty, Timeout: 10 * time.Second, ShutdownTimeout: 10 * time.Second,
				RoutingKey: Secret(strings.Repeat("k", 32)), MaxConcurrentRequests: 4, QueueSize: 256, MaxAge: 12 * time.Hour,
				Retry: Retry{InitialInterval: time.Second, MaxInterval: 30 * time.Second, MaxElapsedTime: 5 * time.Minute},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.cfg.Endpoint, tc.cfg.ClusterName = "https://events.example.com", "c"
			got, err := defaultAndCheckConfig(tc.cfg)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(Config{}, "Endpoint", "ClusterName", "Registerer", "Logger", "HTTP")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestConfigShowsNoSecret(t *testing.T) {
	cfg := Config{ //nolint:gosec // of a test
		Enabled: true, Endpoint: "https://hooks.example.com/services/hunter2", ClusterName: "c", AuthToken: "hunter2", RoutingKey: "hunter2",
		ProxyURL: "http://u:hunter2@proxy.example.com",
	}
	data, err := json.Marshal(map[string]any{"config": cfg, "pointer": &cfg, "key": cfg.RoutingKey})
	if err != nil {
		t.Fatal(err)
	}
	var log logged
	log.logger().Info("config", "config", cfg, "secret", cfg.RoutingKey)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("config", "config", cfg, "pointer", &cfg)
	shown := []string{string(data), log.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		shown = append(shown, fmt.Sprintf(verb, cfg.RoutingKey))
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		shown = append(shown, fmt.Sprintf(verb, cfg), fmt.Sprintf(verb, &cfg), fmt.Sprintf(verb, struct{ C Config }{cfg}))
	}
	cfg.RoutingKey, cfg.ProxyURL = "", ""
	client := start(t, cfg)
	slog.New(slog.NewTextHandler(&log, nil)).Info("client", "client", client)
	shown = append(shown, log.String())
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		shown = append(shown, fmt.Sprintf(verb, client))
	}
	for _, text := range shown {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "68756e74657232") {
			t.Errorf("the secret is in %s", text)
		}
	}
	if s := cfg.String(); !strings.Contains(s, "hooks.example.com") || !strings.Contains(s, redacted) {
		t.Errorf("%s: want the host, and that there is a token", s)
	}
	if got := fmt.Sprintf("%q %v", Secret(""), Secret("")); got != `"" ` {
		t.Errorf("no secret shows as %s, want as nothing", got)
	}
}

// FuzzCluster verifies that any cluster name results in exactly one path segment.
func FuzzCluster(f *testing.F) {
	for _, name := range []string{"my-cluster", "a/b", "a b", "x?y", "..", ".", "#", "%2e%2e", "%", "é", "\xff", "a\r\nb", "//host/x", ";", "a%2Fb", "?k=v&", "\x00"} {
		f.Add(name)
	}
	var seen *url.URL
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.URL }))
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, name string) {
		segment, err := escapedCommonCluster([]*ChangeEvent{{Cluster: name}})
		if err != nil {
			if name != "" && name != "." && name != ".." {
				t.Errorf("%q is refused: %v", name, err)
			}
			return
		}
		for _, base := range []string{"/changes", "/changes/", "", "/a%2Fb/c"} {
			endpoint, err := parseAndCheckEndpoint(server.URL+base+"?k=v", true)
			if err != nil {
				t.Fatal(err)
			}
			u, err := appendPathSegment(endpoint, segment)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.String(), nil)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			resp, err := server.Client().Do(r)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%q: the server did not understand the request: %s", name, resp.Status)
			}
			want := strings.TrimRight(base, "/") + "/" + url.PathEscape(name)
			if seen.EscapedPath() != want || seen.RawQuery != "k=v" || seen.Fragment != "" {
				t.Fatalf("%q arrives as %q with query %q, want %q with k=v", name, seen.EscapedPath(), seen.RawQuery, want)
			}
		}
	})
}

func TestFilesAreBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, make([]byte, maxCredential+1), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := enabled(&script{})
	cfg.AuthTokenFile = file
	if err := Check(cfg); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v, want that the file is too large", err)
	}
}
