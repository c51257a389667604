package cli

import (
	"cmp"
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/process"
	consolesession "github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/settings"
	"github.com/fleetloop/fleetloop/internal/version"
)

// An access is a client of the fleet API with the origin of its token.
type access struct {
	cfg    Config
	report *settings.Report
	client *fleetclient.Client // sends the token

	store   loginStore
	login   *storedLogin // nil if the token has another source
	answers *answerHeaders
}

// newLoginStore returns the store of logins, which is beside the configuration file.
func newLoginStore(configPath string) loginStore {
	if configPath == "" {
		return loginStore{}
	}
	return loginStore{path: strings.TrimSuffix(configPath, filepath.Ext(configPath)) + ".credentials.json"}
}

// newAccessFromConfigAndLogin returns the access to the server from flags, environment, login, context and file, in this
// order.
func (s *session) newAccessFromConfigAndLogin(cmd *cobra.Command) (*access, error) {
	cfg, report, err := s.loadConfig(cmd)
	if err != nil {
		return nil, err
	}
	path, _ := s.configPath(cmd)
	a := &access{cfg: cfg, report: report, store: newLoginStore(path), answers: &answerHeaders{}}
	if verbose, _ := cmd.Flags().GetBool(verboseFlag); verbose { // false without the flag
		a.answers.log = s.printNote
	}
	if cfg.InsecureTLS {
		s.printNote("warning: the certificate of %s is not verified", cfg.Server)
	}
	impersonated, err := parseImpersonationFlags(cmd)
	if err != nil {
		return nil, err
	}
	if a.client, err = s.newFleetClient(cfg, impersonated, a.answers); err != nil {
		return nil, err
	}

	// A token of a flag or of the environment has priority over a login.
	if a.store.path == "" || isGiven(sourceOf(report, "token")) || isGiven(sourceOf(report, "token_file")) {
		return a, nil
	}
	login, found, err := a.store.findLogin(cfg.CurrentContext, a.client.Endpoint())
	if err != nil {
		return nil, &failure{err: err, code: CodeUsage}
	}
	if !found {
		return a, nil
	}
	a.login = &login
	a.client, err = a.client.WithToken(newLoginTokenSource(a.store, login, renewTokens, s.env.Now))
	if err != nil {
		return nil, err
	}
	return a, nil
}

// isGiven reports whether a setting comes from the environment or a flag.
func isGiven(source settings.OriginSource) bool {
	return source == settings.FromEnv || source == settings.FromFlag
}

// newFleetClient returns the client of a configuration, whatever the logins. All its requests pass through answers.
func (s *session) newFleetClient(
	cfg Config, impersonated fleetclient.Impersonation, answers *answerHeaders,
) (*fleetclient.Client, error) {
	client, err := process.NewFleetClient(process.FleetClientConfig{
		Endpoint:  cfg.Server,
		Token:     cfg.Token,
		TokenFile: cfg.TokenFile,
		CAFile:    cfg.CAFile,
		TLS: process.FleetClientTLS{
			ClientCertFile:     cfg.ClientCert,
			ClientKeyFile:      cfg.ClientKey,
			InsecureSkipVerify: cfg.InsecureTLS,
		},
		Timeout:     cfg.RequestTimeout,
		UserAgent:   "fleetloop/" + version.Get().Version,
		Impersonate: impersonated,
		Wrap: func(next http.RoundTripper) http.RoundTripper {
			if s.env.Wrap != nil {
				next = s.env.Wrap(next)
			}
			answers.next = next
			answers.now = s.env.Now
			return answers
		},
	})
	if err != nil {
		return nil, &failure{err: err, code: CodeUsage, next: "run 'fleetloop config show --origins' to see each setting and its source"}
	}
	return client, nil
}

// hasToken reports whether requests have a token.
func (a *access) hasToken() bool {
	return a.login != nil || a.cfg.Token != "" || a.cfg.TokenFile != ""
}

// describeTokenOrigin describes how the token was obtained.
func (a *access) describeTokenOrigin() string {
	switch {
	case a.login != nil && a.login.Method == methodStdin:
		return "login with a token"
	case a.login != nil:
		return "login at " + a.login.Issuer.URL + " (" + string(a.login.Method) + ")"
	case a.cfg.Token != "":
		return a.describeSettingOrigin("token")
	case a.cfg.TokenFile != "":
		return "file " + a.cfg.TokenFile + ", set by " + a.describeSettingOrigin("token_file")
	}
	return "none"
}

// describeSettingOrigin describes what set a setting. It is empty for an unknown one.
func (a *access) describeSettingOrigin(key string) string {
	for _, origin := range a.report.Origins() {
		if origin.Key == key {
			return origin.String()
		}
	}
	return ""
}

// currentTokenExpiry returns the expiry of the token, zero if it is unknown.
func (a *access) currentTokenExpiry(ctx context.Context) time.Time {
	switch {
	case a.login != nil:
		// The token may have been renewed since.
		if stored, found, err := a.store.findLogin(a.login.Context, a.login.Server); found && err == nil {
			return stored.Tokens.Expires
		}
		return a.login.Tokens.Expires
	case a.cfg.TokenFile != "":
		token, _ := fleetclient.FileToken(a.cfg.TokenFile).Token(ctx, "")
		return parseJWTExpiry(token)
	}
	return parseJWTExpiry(a.cfg.Token.Reveal())
}

// issuerTimeout limits the handshake with an issuer.
const issuerTimeout = 10 * time.Second

// renewTokens gets new tokens of a login from its issuer.
func renewTokens(ctx context.Context, l storedLogin) (consolesession.Tokens, error) {
	i, err := newIssuer(l.Issuer)
	if err != nil {
		return consolesession.Tokens{}, err
	}
	return i.RefreshTokens(ctx, l.Tokens.Refresh)
}

// newIssuer returns the client of an issuer.
func newIssuer(i loginIssuer) (*consolesession.Issuer, error) {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSHandshakeTimeout: issuerTimeout,
		DisableKeepAlives:   true,
	}
	cfg := consolesession.IssuerConfig{URL: i.URL, ClientID: i.ClientID, Scopes: i.Scopes, Token: i.Token}
	return consolesession.NewIssuer(cfg, transport)
}

// answerHeaders keeps the headers of the last response that matter for version and doctor.
type answerHeaders struct {
	next http.RoundTripper
	now  func() time.Time
	log  func(format string, args ...any) // nil without --verbose

	mu      sync.Mutex
	version string        // of the server
	skew    time.Duration // how far the clock of the server is ahead
}

func (a *answerHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	began := a.now()
	resp, err := a.next.RoundTrip(r)
	if a.log != nil {
		a.log("%s", describeRequest(r, resp, a.now().Sub(began)))
	}
	if err != nil {
		return resp, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version = cmp.Or(resp.Header.Get(v1.VersionHeader), a.version)
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		// The header has whole seconds, and the response is at most as old as the request.
		ended := a.now()
		middle := began.Add(ended.Sub(began) / 2)
		a.skew = date.Add(time.Second / 2).Sub(middle)
	}
	return resp, nil
}

// get returns the version of the server, and how far its clock is ahead, if it has told.
func (a *answerHeaders) get() (server string, skew time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version, a.skew
}
