package allinone

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/app/consoleapp"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/hosts"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// administrator is the person with all rights in the embedded host cluster.
const administrator = "admin"

// administratorGroup has all rights in Kubernetes.
const administratorGroup = "system:masters"

// newDemoPersons returns the persons whom the console offers instead of a sign-in, with random tokens.
// They authenticate the persons at the embedded host cluster, and name them to the fleet API.
func newDemoPersons() []console.DemoPerson {
	return []console.DemoPerson{
		{Name: requester, Role: "requests executions", Token: rand.Text()},
		{Name: approver, Role: "approves executions", Token: rand.Text()},
		{Name: administrator, Role: "administers the host cluster", Token: rand.Text()},
	}
}

func mapTokensToNames(persons []console.DemoPerson) map[string]string {
	names := make(map[string]string, len(persons))
	for _, p := range persons {
		names[p.Token] = p.Name
	}
	return names
}

// writeTokenFile writes the token file of the embedded API server.
func writeTokenFile(dataDir string, persons []console.DemoPerson) (path string, err error) {
	var b strings.Builder
	for _, p := range persons {
		group := "demo"
		if p.Name == administrator {
			group = administratorGroup
		}
		fmt.Fprintf(&b, "%s,%s,%s,%q\n", p.Token, p.Name, p.Name, group)
	}
	path = filepath.Join(dataDir, "console-tokens.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return "", fmt.Errorf("write tokens of the demo persons: %w", err)
	}
	return path, nil
}

// createConsoleRBACAndConfig creates the read-only account of the console and returns its connection.
func (h *hostCluster) createConsoleRBACAndConfig(ctx context.Context) (*rest.Config, error) {
	for _, o := range []client.Object{hosts.NewConsoleClusterRole(), hosts.NewClusterRoleBinding(nodefault.DefaultNamespace)} {
		if err := h.createIfMissing(ctx, o); err != nil {
			return nil, err
		}
	}
	// Use a certificate, because a service account token would expire.
	user := "system:serviceaccount:" + nodefault.DefaultNamespace + ":" + hosts.RoleName
	return h.bed.User(user, "system:serviceaccounts", "system:authenticated")
}

// addConsole adds the web console of the fleet API and the host cluster.
func (l *components) addConsole(ctx context.Context, p *process.Process, cfg Config) error {
	if !cfg.Console.Enabled {
		return nil
	}
	part := consoleapp.OverriddenDefaults().Part
	if _, err := settings.Load(&part, settings.Source{}); err != nil {
		return err
	}
	part.FleetAPI = l.address
	part.Server.Addr = cfg.Console.Addr
	overrides := consoleapp.Overrides{Demo: l.persons, Sinks: l.sinks}
	if l.host != nil {
		var err error
		if overrides.Host, err = l.host.createConsoleRBACAndConfig(ctx); err != nil {
			return err
		}
		overrides.HostConfig = hosts.Config{
			Name:               localCluster,
			ExecutionNamespace: guard.DefaultNamespace,
			AuditDatabaseURL:   settings.Secret(l.audit),
		}
	}
	parts, url, err := consoleapp.BuildParts(ctx, p, part, overrides)
	if err != nil {
		return fmt.Errorf("start console (--console-listen-address): %w", err)
	}
	l.parts = append(l.parts, parts...)
	l.console = url
	p.Log.InfoContext(ctx, "console ready", "url", url)
	return nil
}
