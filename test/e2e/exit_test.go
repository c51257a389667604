package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// wait waits for the end of a process that ends by itself and gives its exit
// code.
func (p *process) wait(t *testing.T, bound time.Duration) int {
	t.Helper()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		t.Fatalf("%s has not ended within %s", p.name, bound)
	}
	return p.cmd.ProcessState.ExitCode()
}

// TestExitCodes holds that a process that can not begin ends at once, with a
// code other than 0 and with its reasons on standard error.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sentinel-config.yaml")
	const text = "resource_type: clusters\nhyperfleet_api: {endpoint: 'http://127.0.0.1:1'}\nmessage_data: {display_name: '{{if .id}'}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	good := writeConfig(t, "http://127.0.0.1:1", "resource_type: clusters\nhyperfleet_api: {endpoint: API}\n")
	nats := map[string]string{"BROKER_TYPE": "nats", "BROKER_URL": "nats://127.0.0.1:1"}
	cases := map[string]struct {
		reason string
		binary string
		env    map[string]string
		args   []string
		code   int
		want   string
	}{
		"MissingFile":  {"names it", "sentinel", nats, []string{"--config", file + ".yaml"}, 1, file + ".yaml"},
		"BadTemplate":  {"names the key and its place", "sentinel", nats, []string{"--config", file}, 1, file + `:3:30: key "message_data.display_name": template: line 1, column 9: `},
		"Validate":     {"says the same", "sentinel", nil, []string{"validate", "--config", file}, 1, file + `:3:30: key "message_data.display_name": template: line 1, column 9: `},
		"ValidateGood": {"says what it watches", "sentinel", nil, []string{"validate", "--config", good}, 0, "valid: watches clusters"},
		"NoBroker":     {"names the variable", "sentinel", nil, []string{"--config", good}, 1, "BROKER_TYPE is required"},
		"NoDatabase":   {"names the variable", "fleet-api", nil, nil, 1, "DATABASE_URL is not set"},
		"OpenToAll":    {"nobody is asked who he is", "fleet-api", map[string]string{"DATABASE_URL": "postgres://h/d", "LISTEN_ADDRESS": ":0"}, nil, 1, "loopback"},
		"Version":      {"names the binary", "sentinel", nil, []string{"version"}, 0, "sentinel, version "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, tc.binary, tc.env, tc.args...)
			if code := p.wait(t, slack); code != tc.code || !strings.Contains(p.log.String(), tc.want) {
				t.Errorf("%s: exit code %d, want %d and %q:\n%s", tc.reason, code, tc.code, tc.want, p.log)
			}
		})
	}
}

// TestUp runs the whole loop in one process, to its good end, to its bad one,
// and until it is told to stop.
func TestUp(t *testing.T) {
	t.Parallel()
	addresses := []string{"up", "--listen-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0", "--console-listen-address", "127.0.0.1:0"}
	cases := map[string]struct {
		reason string
		args   []string
		signal syscall.Signal
		code   int
		want   string
	}{
		"Ready": {
			"with a summary",
			[]string{"--demo", "--exit-when-ready", "--demo-clusters", "2", "--poll-interval", "100ms", "--max-age-not-ready", "300ms", "--adapter-latency", "1ms"},
			0, 0, "Clusters     2       2",
		},
		"NotReady": {
			"a script can tell",
			[]string{"--demo", "--exit-when-ready", "--demo-clusters", "1", "--timeout", "1s", "--adapters=false"},
			0, 1, "the demo fleet is not Ready",
		},
		"Terminated": {"it was asked to", []string{"--data-dir", t.TempDir()}, syscall.SIGTERM, 0, "msg=stopped"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, "fleetloop", map[string]string{"DATABASE_URL": pgtest.NewMigratedDatabaseURL(t)}, append(addresses, tc.args...)...)
			if tc.signal != 0 {
				eventually(t, patience, func() error { return p.log.mentions(`msg="fleet API ready"`) })
				if err := p.cmd.Process.Signal(tc.signal); err != nil {
					t.Fatal(err)
				}
			}
			if code := p.wait(t, 2*patience); code != tc.code || p.log.mentions(tc.want) != nil {
				t.Errorf("%s: exit code %d, want %d and %q:\n%s", tc.reason, code, tc.code, tc.want, p.log)
			}
		})
	}
}
