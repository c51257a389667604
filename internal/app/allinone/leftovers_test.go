package allinone_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/allinone"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
)

// newDir is a folder that the database's user can reach, also as root.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleetloop-up-") //nolint:usetesting // t.TempDir is closed to the user that a root's server runs as
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// takenAddress returns an address with an active listener.
func takenAddress(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// runUp runs "up" until ctx ends, with nothing in its environment but env.
func runUp(ctx context.Context, env map[string]string, args ...string) error {
	cmd := allinone.NewCommand(allinone.Env{ //nolint:contextcheck // cobra hands the context on
		Stdout: new(bytes.Buffer), Stderr: new(bytes.Buffer),
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

// TestUpNamesTakenAddresses: all addresses that are taken are named at once, with
// what moves them, before there is a database.
func TestUpNamesTakenAddresses(t *testing.T) {
	dir, api, probes := newDir(t), takenAddress(t), takenAddress(t)
	err := runUp(t.Context(), nil, "--data-dir", dir, "--listen-address", api, "--metrics-bind-address", probes, "--health-probe-bind-address", probes, "--console-listen-address", "127.0.0.1:0")
	if err == nil {
		t.Fatal("up runs on addresses that are taken")
	}
	for _, want := range []string{
		api + ": fleet API (--listen-address)",
		probes + ": health (--health-probe-bind-address), metrics (--metrics-bind-address)",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("up = %v, want it to name %q", err, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("there is data already: %v, %v", entries, err)
	}
}

func TestUpThatCannotListenLeavesNothingRunning(t *testing.T) {
	const free = "127.0.0.1:0"
	cases := map[string]struct {
		reason string
		api    string
		probes string
		flag   string
	}{
		"API":    {reason: "the API's port is known to be taken while the loop is built", api: takenAddress(t), probes: free, flag: "--listen-address"},
		"Probes": {reason: "the port for health is known to be taken when all parts are made", api: free, probes: takenAddress(t), flag: "--metrics-bind-address"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			dir := newDir(t)
			err := runUp(ctx, nil, "--data-dir", dir, "--listen-address", tc.api,
				"--metrics-bind-address", tc.probes, "--health-probe-bind-address", tc.probes, "--console-listen-address", free)
			if err == nil || !strings.Contains(err.Error(), "address already in use") || !strings.Contains(err.Error(), tc.flag) {
				t.Fatalf("%s: up = %v, want an error about the port, with the flag %s", tc.reason, err, tc.flag)
			}
			server, err := pgserver.Start(ctx, pgserver.Config{Dir: filepath.Join(dir, "postgresql")}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatalf("%s: the database is still in use: %v", tc.reason, err)
			}
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
