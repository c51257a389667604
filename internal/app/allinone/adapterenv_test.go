package allinone

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// TestAdapterEnvConnectsToTheBroker verifies that a shell can source the variables for adapters, and that they
// connect to the broker, which listens on any free port.
func TestAdapterEnvConnectsToTheBroker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := &components{address: "http://127.0.0.1:8080"}
	env := map[string]string{"BROKER_TOPIC": "it's-a-topic"}
	p := &process.Process{Log: slog.New(slog.DiscardHandler)}
	broker, err := l.openExternalOrEmbeddedBroker(p, natsserver.Config{}, dir, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	runUntilTheEnd(t, broker.Run)
	waitForNil(t, broker.Ready)

	shell := exec.CommandContext(t.Context(), "sh", "-euc", formatSourceCommand(l.adapterEnv)+" && env | grep -E '^(BROKER|HYPERFLEET|HEALTH|METRICS)' | sort")
	shell.Env = []string{"PATH=/bin:/usr/bin"}
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		got[name] = value
	}
	var cfg nats.Config
	if _, err := settings.Load(&cfg, settings.Source{Env: func(name string) (string, bool) { v, ok := got[name]; return v, ok }}); err != nil {
		t.Fatal(err)
	}
	client, err := nats.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	runUntilTheEnd(t, client.Run)
	waitForNil(t, client.Ready)

	delete(got, "BROKER_URL")
	want := map[string]string{
		"BROKER_TYPE": "nats", "BROKER_TOPIC": "it's-a-topic", "HYPERFLEET_API_ENDPOINT": l.address,
		"HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0", "METRICS_BIND_ADDRESS": "127.0.0.1:0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(filepath.Join(dir, adapterEnvFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want a file for its owner alone", info, err)
	}
	if g, err := l.newGuide(); err != nil || !strings.Contains(g.formatText(), "("+formatSourceCommand(l.adapterEnv)+" && go run .)\n") {
		t.Errorf("the guide does not show how to run an adapter: %v", err)
	}
}

// TestExternalBrokerHasNoAdapterEnv verifies that nothing claims to describe a broker that the user configured.
func TestExternalBrokerHasNoAdapterEnv(t *testing.T) {
	t.Parallel()
	env := map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": "nats://127.0.0.1:1"}
	l, p := &components{}, &process.Process{Log: slog.New(slog.DiscardHandler)}
	if _, err := l.openExternalOrEmbeddedBroker(p, natsserver.Config{}, t.TempDir(), func(name string) (string, bool) { v, ok := env[name]; return v, ok }); err != nil {
		t.Fatal(err)
	}
	if g, err := l.newGuide(); err != nil || strings.Contains(g.formatText(), "go run .") {
		t.Errorf("the guide shows an adapter: %v\n%s", err, g.formatText())
	}
}

// runUntilTheEnd runs a part until the test ends.
func runUntilTheEnd(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// waitForNil waits until check returns nil.
func waitForNil(t *testing.T, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(errors.Join(err, ctx.Err()))
		case <-ticker.C:
		}
	}
}
