package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/app/allinone"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// TestListenAddresses: the addresses are those that "fleetloop up" takes from the same
// arguments and environment.
func TestListenAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		args string
		env  map[string]string
	}{
		"Defaults": {},
		"Flags":    {args: "--demo --listen-address=127.0.0.1:1 --metrics-bind-address 127.0.0.1:2 --health-probe-bind-address :3 --console-listen-address :9"},
		"Env":      {env: map[string]string{"LISTEN_ADDRESS": ":4", "HEALTH_PROBE_BIND_ADDRESS": ":5", "METRICS_BIND_ADDRESS": ":6", "CONSOLE_LISTEN_ADDRESS": ":10"}},
		"Both":     {args: "--listen-address :7", env: map[string]string{"LISTEN_ADDRESS": ":8"}},
	} {
		t.Run(name, func(t *testing.T) {
			lookup := func(name string) (string, bool) { value, ok := tc.env[name]; return value, ok }
			args := strings.Fields(tc.args)
			up := allinone.NewCommand(allinone.Env{LookupEnv: lookup})
			if err := up.ParseFlags(args); err != nil {
				t.Fatal(err)
			}
			cfg := allinone.OverriddenDefaults()
			if _, err := settings.Load(&cfg, settings.Source{Env: lookup, Flags: up.Flags()}); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range listenAddressesOfUp(args, lookup) {
				got = append(got, a.Addr)
			}
			if diff := cmp.Diff([]string{cfg.API.Server.Addr, cfg.HealthAddr, cfg.MetricsAddr, cfg.Console.Addr}, got); diff != "" {
				t.Errorf("addresses (-fleetloop up +this):\n%s", diff)
			}
		})
	}
}
