// Package consoleapp wires the web console: its sessions, the fleet API that it forwards to, and its
// server.
package consoleapp

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/fleetclient"
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/settings"
)

type (
	// Console embeds its settings in Part under a distinct name.
	Console = console.Config
	// Process embeds its settings in Config under a distinct name.
	Process = process.Config
)

// Config is the configuration of the console binary.
type Config struct {
	Part
	Process
}

// Part is the configuration of the console within a process.
type Part struct {
	Console

	Server httpserver.Config `key:"server"`

	FleetAPICAFile string `key:"fleet_api_ca_file" env:"FLEET_API_CA_FILE" flag:"fleet-api-ca-file" doc:"File with CA certificates to verify the fleet API (default: system CAs)."`

	SessionKey settings.Secret `key:"session_key" env:"CONSOLE_SESSION_KEY" file:"session_key_file" secret:"true" doc:"Key that encrypts the sessions: 32 random bytes in base64. All replicas need the same one. Without a key, sessions end with the process."`
}

// Overrides replaces what a process has already, for a console within fleetloop up.
type Overrides struct {
	// Demo lists the persons of a demo. They replace the configured sign-in.
	Demo []console.DemoPerson
}

// OverriddenDefaults returns the defaults that differ from those of the parts.
func OverriddenDefaults() Config {
	var cfg Config
	cfg.Server.Addr = "127.0.0.1:8082"
	cfg.MetricsAddr = ":9090"
	cfg.HealthAddr = ":8081"
	return cfg
}

// Parts returns the parts of the console in order of dependency, and the URL of its page.
func Parts(ctx context.Context, p *process.Process, cfg Part, o Overrides) (parts []lifecycle.Part, url string, err error) {
	fleet, err := newFleet(cfg)
	if err != nil {
		return nil, "", err
	}
	key := session.NewKey()
	if cfg.SessionKey != "" {
		if key, err = session.ParseKey(cfg.SessionKey.Reveal()); err != nil {
			return nil, "", err
		}
	}
	if len(o.Demo) > 0 {
		cfg.Mode = console.ModeDemo
	}
	sessions := session.New(cfg.Session, key, session.NewMemory(), nil, p.Log)
	c, err := console.New(cfg.Console, console.Deps{
		ListenAddr: cfg.Server.Addr, TLS: cfg.Server.TLSCertFile != "",
		Sessions: sessions, Identify: fleet.identify, Transport: fleet.transport, Demo: o.Demo,
		Log: p.Log, Metrics: p.Metrics,
	})
	if err != nil {
		return nil, "", err
	}
	server, err := httpserver.Listen(ctx, cfg.Server, c.Handler(), p.Log)
	if err != nil {
		return nil, "", fmt.Errorf("listen for requests to the console: %w", err)
	}
	server.OnShutdown(c.EndStreams)
	scheme := "http://"
	if cfg.Server.TLSCertFile != "" {
		scheme = "https://"
	}
	return []lifecycle.Part{
		{Name: "console sessions", Run: sessions.Run},
		{Name: "console", Run: server.Run, Ready: server.Ready, Close: server.Close},
	}, scheme + server.Addr() + c.BasePath(), nil
}

// A fleet calls the fleet API for the console.
type fleet struct {
	cfg       fleetclient.Config
	transport http.RoundTripper
}

func newFleet(cfg Part) (*fleet, error) {
	f := &fleet{cfg: fleetclient.Config{Endpoint: cfg.FleetAPI, CAFile: cfg.FleetAPICAFile, UserAgent: "fleetloop-console"}}
	// All persons share the connections; only the token differs.
	_, err := fleetclient.New(f.cfg, fleetclient.Deps{Wrap: func(rt http.RoundTripper) http.RoundTripper {
		f.transport = rt
		return rt
	}})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// as returns a client with the token of a person.
func (f *fleet) as(token string) (*fleetclient.Client, error) {
	cfg := f.cfg
	cfg.Token = settings.Secret(token)
	return fleetclient.New(cfg, fleetclient.Deps{Wrap: func(http.RoundTripper) http.RoundTripper { return f.transport }})
}

// identify returns the person to whom the fleet API attributes a token.
func (f *fleet) identify(ctx context.Context, token string) (session.User, error) {
	client, err := f.as(token)
	if err != nil {
		return session.User{}, errors.Join(console.ErrToken, err)
	}
	who, err := client.WhoAmI(ctx)
	if e, ok := errors.AsType[*fleetclient.Error](err); ok && e.Status == http.StatusUnauthorized {
		return session.User{}, console.ErrToken
	}
	if err != nil {
		return session.User{}, err
	}
	return session.User{Name: who.Subject, Tenant: who.Tenant, Roles: who.Roles}, nil
}
