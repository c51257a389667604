package allinone_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/allinone"
	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// runProgramUp runs the program fleetloop-up, and returns its exit code and its standard error.
func runProgramUp(ctx context.Context, env map[string]string, args ...string) (code int, stderr string) {
	var out bytes.Buffer
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	root := allinone.NewProgramCommand(allinone.Env{Stdout: new(bytes.Buffer), Stderr: &out, LookupEnv: lookup}) //nolint:contextcheck // cobra hands the context on
	return cli.Run(ctx, cli.Env{Stderr: &out}, root, args), out.String()
}

func TestUpRefusesWhatItCannotDo(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   string
		env    map[string]string
		want   string
	}{
		"Value":   {reason: "a value that makes no sense", args: "--demo-clusters 0", want: "--demo-clusters"},
		"NoAddr":  {reason: "without an address net/http takes any port of every interface", args: "--metrics-bind-address=", want: "--metrics-bind-address"},
		"NoDemo":  {reason: "there is no fleet to wait for, so it would run for ever", args: "--exit-when-ready", want: "--demo"},
		"Auth":    {reason: "its own sentinels and adapters have no tokens", args: "--auth-mode bearer", want: "fleet-api"},
		"AuthEnv": {reason: "the environment may be that of a fleet-api", env: map[string]string{"FLEET_API_AUTH_MODE": "bearer"}, want: "fleet-api"},
		"Unknown": {reason: "the reader called fleetloop up", args: "--demos", want: "fleetloop up --help"},
		"Word":    {reason: "there is no such command", args: "stop", want: "fleetloop up --help"},
		"TLS":     {reason: "its own sentinels and adapters speak HTTP", args: "--tls-cert-file a.pem --tls-key-file b.pem", want: "fleet-api"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			code, stderr := runProgramUp(ctx, tc.env, strings.Fields(tc.args)...)
			if code != cli.CodeUsage || !strings.Contains(stderr, tc.want) {
				t.Errorf("%s: exit code %d, %q; want %d and %q", tc.reason, code, stderr, cli.CodeUsage, tc.want)
			}
		})
	}
}
