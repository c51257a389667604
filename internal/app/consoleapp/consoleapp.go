// Package consoleapp wires the web console: its sessions, the fleet API that it forwards to, and its
// server.
package consoleapp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/hosts"
	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
	"github.com/fleetloop/fleetloop/internal/postgres"
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

	OIDC session.IssuerConfig `key:"oidc"`

	Database postgres.Config `key:"database"`

	FleetAPICAFile string `key:"fleet_api_ca_file" env:"FLEET_API_CA_FILE" flag:"fleet-api-ca-file" doc:"File with CA certificates to verify the fleet API (default: system CAs)."`

	Hosts []hosts.Config `key:"hosts" validate:"dive" doc:"Host clusters that the console shows."`

	Changes changes.Config `key:"change_events"`

	SessionKey settings.Secret `key:"session_key" env:"CONSOLE_SESSION_KEY" file:"session_key_file" secret:"true" doc:"Key that encrypts the sessions: 32 random bytes in base64. All replicas need the same one. Required with a database. Without both, sessions end with the process."`
}

// Overrides replaces what a process has already, for a console within fleetloop up.
type Overrides struct {
	// Demo lists the persons of a demo. They replace the configured sign-in.
	Demo []console.DemoPerson
	// Host is a host cluster beside the configured ones, and HostConfig its other settings.
	Host       *rest.Config
	HostConfig hosts.Config
	// Sinks replaces the configured sinks. The caller closes them.
	Sinks *changes.Sinks
}

// OverriddenDefaults returns the defaults that differ from those of the parts.
func OverriddenDefaults() Config {
	var cfg Config
	cfg.Server.Addr = "127.0.0.1:8082"
	cfg.MetricsAddr = ":9090"
	cfg.HealthAddr = ":8081"
	cfg.Database.Role = postgres.RoleConsole
	cfg.Database.MaxConns = 8
	cfg.Database.ApplicationName = binary
	return cfg
}

// BuildParts returns the parts of the console in order of dependency, and the URL of its page.
func BuildParts(ctx context.Context, p *process.Process, cfg Part, overrides Overrides) (parts []lifecycle.Part, url string, err error) {
	fleet, err := newFleetClient(cfg)
	if err != nil {
		return nil, "", err
	}
	if len(overrides.Demo) > 0 {
		cfg.Mode = console.ModeDemo
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lifecycle.CloseAll(parts...))
			parts = nil
		}
	}()

	// The dependencies of the console, each with its parts.
	clusters, parts, err := newHostClustersAndParts(cfg, overrides, fleet, p) //nolint:contextcheck // the pools outlive the call
	if err != nil {
		return parts, "", err
	}
	sinks := overrides.Sinks
	if sinks == nil {
		if sinks, err = changes.New(cfg.Changes, eventSource, p); err != nil { //nolint:contextcheck // the sinks outlive the call
			return parts, "", err
		}
		parts = append(parts, sinks.Part())
	}
	issuer, refresh, err := newIssuerIfOIDC(cfg)
	if err != nil {
		return parts, "", err
	}
	sessions, databaseParts, err := newSessionsAndDatabaseParts(cfg, refresh, p) //nolint:contextcheck // the pool outlives the call
	parts = append(parts, databaseParts...)
	if err != nil {
		return parts, "", err
	}

	// The console and its server.
	c, err := console.New(cfg.Console, console.Deps{ //nolint:contextcheck // the console outlives the call
		ListenAddr:   cfg.Server.Addr,
		TLS:          cfg.Server.TLSCertFile != "",
		Sessions:     sessions,
		Identify:     fleet.lookUpTokenUser,
		Transport:    fleet.transport,
		Fleet:        fleet.listStreamSources(),
		Hosts:        clusters,
		RecordAction: newActionEventSender(sinks),
		Issuer:       issuer,
		Demo:         overrides.Demo,
		Log:          p.Log,
		Metrics:      p.Metrics,
	})
	if err != nil {
		return parts, "", err
	}
	server, err := httpserver.NewListeningServer(ctx, cfg.Server, c.Handler(), p.Log)
	if err != nil {
		return parts, "", fmt.Errorf("listen for requests to the console: %w", err)
	}
	server.OnShutdown(c.EndStreams)
	parts = append(parts,
		lifecycle.Part{Name: "console sessions", Run: sessions.RunCleanup},
		lifecycle.Part{Name: "console", Run: server.Run, Ready: server.Ready, Close: server.Close},
	)
	return parts, formatPageURL(cfg.Server, server.Addr(), c.BasePath()), nil
}

func formatPageURL(cfg httpserver.Config, addr, path string) string {
	scheme := "http://"
	if cfg.TLSCertFile != "" {
		scheme = "https://"
	}
	return scheme + addr + path
}

// newIssuerIfOIDC returns the issuer in mode oidc, and the function that refreshes its tokens. Other modes have
// neither.
func newIssuerIfOIDC(cfg Part) (console.Issuer, session.RefreshFunc, error) {
	if cfg.Mode != console.ModeOIDC {
		return nil, nil, nil
	}
	issuer, err := session.NewIssuer(cfg.OIDC, nil)
	if err != nil {
		return nil, nil, err
	}
	return issuer, issuer.RefreshTokens, nil
}

var errNoSessionKey = errors.New(
	"the session key is not set; replicas that share a database need the same key: set CONSOLE_SESSION_KEY to the output of: openssl rand -base64 32",
)

// newSessionsAndDatabaseParts returns the sessions in the database, or in memory without one, and the parts of the
// database.
func newSessionsAndDatabaseParts(
	cfg Part, refresh session.RefreshFunc, p *process.Process,
) (sessions *session.Sessions, parts []lifecycle.Part, err error) {
	key := session.NewRandomKey()
	switch {
	case cfg.SessionKey != "":
		if key, err = session.ParseBase64Key(cfg.SessionKey.Reveal()); err != nil {
			return nil, nil, err
		}
	case cfg.Database.URL != "": // replicas with different random keys could not read each other's sessions
		return nil, nil, errNoSessionKey
	}
	if cfg.Database.URL == "" {
		return session.New(cfg.Session, key, session.NewMemoryStore(), refresh, p.Log), nil, nil
	}
	pool, err := postgres.New(cfg.Database, p.Log)
	if err != nil {
		return nil, nil, err
	}
	schema := postgres.NewSchemaWaiter(pool, p.Log)
	cfg.Session.MaxRenewals = max(1, cfg.Database.MaxConns/2)
	sessions = session.New(cfg.Session, key, console.NewSessionStore(pool), refresh, p.Log)
	parts = []lifecycle.Part{
		{Name: "database", Run: pool.Run, Ready: pool.Ready, Close: func() error { pool.Close(); return nil }},
		{Name: "schema", Run: schema.Run, Ready: schema.Ready},
	}
	return sessions, parts, nil
}

// newActionEventSender returns the function that records in change events what persons do on host clusters.
func newActionEventSender(sinks *changes.Sinks) func(context.Context, console.Action) {
	return func(ctx context.Context, act console.Action) {
		details := map[string]string{changeevent.DetailActor: act.By}
		if act.View != "" {
			details["view"] = act.View
		}
		sinks.SendChangeEvent(ctx, changeevent.ChangeEvent{
			Action:   act.Action,
			Source:   eventSource,
			Cluster:  act.Host,
			NodeName: act.Node,
			Subject:  act.Object,
			Reason:   act.Reason,
			Details:  details,
		})
	}
}

// eventSource is the source of the change events of the console.
const eventSource = "fleetloop/console"

// newHostClustersAndParts returns the host clusters and their parts. After an error, the caller closes the parts.
func newHostClustersAndParts(
	cfg Part, overrides Overrides, fleet *fleetAPIClient, p *process.Process,
) (clusters *hosts.Clusters, parts []lifecycle.Part, err error) {
	configs := slices.Clone(cfg.Hosts)
	connections := make([]*rest.Config, len(configs)) // nil is the configured one
	if overrides.Host != nil {
		configs = append(configs, overrides.HostConfig)
		connections = append(connections, overrides.Host)
	}
	var list []*hosts.Host
	for i, config := range configs {
		host, hostParts, err := newHostAndParts(config, connections[i], fleet, p)
		parts = append(parts, hostParts...)
		if err != nil {
			return nil, parts, err
		}
		list = append(list, host)
	}
	clusters, err = hosts.NewClusters(fleet.checkSentinelCoverage, list...)
	return clusters, parts, err
}

// newHostAndParts returns a host cluster and its parts. connection replaces the configured one unless it is nil. After
// an error, the caller closes the parts.
func newHostAndParts(
	config hosts.Config, connection *rest.Config, fleet *fleetAPIClient, p *process.Process,
) (host *hosts.Host, parts []lifecycle.Part, err error) {
	readAudit, parts, err := newAuditReaderIfConfigured(config, p)
	if err != nil {
		return nil, nil, err
	}
	host, err = hosts.New(config, hosts.Deps{
		REST:        connection,
		Identify:    fleet.lookUpTokenUser,
		ReleaseNode: releaseNode,
		Decide:      fleet.explainDecisions,
		ReadAudit:   readAudit,
		Log:         p.Log,
	})
	if err != nil {
		return nil, parts, err
	}
	return host, append(parts, host.NewCachePart()), nil
}

// releaseNode removes the changes of node-fault-controller from a node. It also marks the present faults as
// overridden, so that the controller does not quarantine the node again at once.
func releaseNode(node *corev1.Node, now time.Time, reason string) (after *corev1.Node, changed bool) {
	return quarantine.Release(node, now, reason, true)
}

// auditConns is the number of database connections for the audit of a host cluster.
const auditConns = 2

// newAuditReaderIfConfigured returns the reader of the audit of a host cluster, nil if none is configured. An
// unavailable audit is a warning: the console works without it.
func newAuditReaderIfConfigured(
	config hosts.Config, p *process.Process,
) (readAudit hosts.ReadAuditFunc, parts []lifecycle.Part, err error) {
	url, err := readAuditDatabaseURL(config)
	if err != nil || url == "" {
		return nil, nil, err
	}
	pool, err := postgres.New(postgres.Config{
		URL:             url,
		Role:            postgres.RoleExecutionAuditor,
		MaxConns:        auditConns,
		ApplicationName: binary,
	}, p.Log)
	if err != nil {
		return nil, nil, fmt.Errorf("connect the audit of host cluster %q: %w", config.Name, err)
	}
	part := lifecycle.Part{
		Name:  "audit of host cluster " + config.Name,
		Run:   pool.Run,
		Close: func() error { pool.Close(); return nil },
		Warning: func() string {
			if err := pool.Ready(); err != nil {
				return err.Error()
			}
			return ""
		},
	}
	reader := auditReader{audit.NewPostgresStore(pool)}
	return reader.readExecutionEvents, []lifecycle.Part{part}, nil
}

// readAuditDatabaseURL returns the URL of the audit of a host cluster, from the setting or from a file. It is empty if
// none is configured.
func readAuditDatabaseURL(hostConfig hosts.Config) (settings.Secret, error) {
	if hostConfig.AuditDatabaseURLFile == "" {
		return hostConfig.AuditDatabaseURL, nil
	}
	if hostConfig.AuditDatabaseURL != "" {
		return "", fmt.Errorf("host cluster %q has both audit_database_url and audit_database_url_file: remove one of them", hostConfig.Name)
	}
	text, err := os.ReadFile(hostConfig.AuditDatabaseURLFile)
	if err != nil {
		return "", fmt.Errorf("read audit_database_url_file of host cluster %q: %w", hostConfig.Name, err)
	}
	return settings.Secret(strings.TrimSpace(string(text))), nil
}

// auditReader reads the audit of a host cluster.
type auditReader struct{ store *audit.PostgresStore }

func (r auditReader) readExecutionEvents(ctx context.Context, executionUID string) ([]hosts.AuditEvent, error) {
	var events []hosts.AuditEvent
	filter := audit.Filter{Execution: executionUID, Most: hosts.MaxAuditEvents}
	err := r.store.List(ctx, filter, func(e *audit.Event) error {
		if e.ExecutionUID != executionUID { // the filter accepts names as well
			return nil
		}
		events = append(events, hosts.AuditEvent{
			Position: e.Position,
			At:       e.Time,
			Type:     string(e.Type),
			Actor:    e.ActorID,
			Outcome:  e.Outcome,
			Reason:   e.Reason,
			PlanHash: e.PlanHash,
		})
		return nil
	})
	return events, err
}
