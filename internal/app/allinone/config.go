// Package allinone runs all of Fleetloop in one process.
//
// The process holds PostgreSQL, the fleet API, a durable broker, two sentinels, three sample
// adapters, and a cluster-worker with a garden in memory. It runs the code of the separate binaries
// with other values. An external service that the environment names, by DATABASE_URL, BROKER_TYPE
// or GARDENER_MODE, replaces the embedded part.
//
// With --demo it creates a fleet (DemoFleet), follows it (FleetWatch) and shows it (LiveView).
package allinone

import (
	"cmp"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/apiapp"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Process embeds its settings in Config under a distinct name.
type Process = process.Config

// Config is the configuration of fleetloop up.
type Config struct {
	Process

	// API is the fleet API, with its listener and its database.
	API apiapp.Part `key:"api"`

	// NATS is the embedded broker.
	NATS natsserver.Config `key:"nats"`

	// DataDir holds the embedded database and broker. Empty means a folder that is removed at the
	// end for a demo, and the state folder of the user otherwise.
	DataDir string `key:"data_dir" env:"FLEETLOOP_DATA_DIR" flag:"data-dir" doc:"data directory of the embedded database and broker (default: with --demo a temporary directory, otherwise fleetloop in the user state directory)"`

	// Kube selects the host cluster.
	Kube string `key:"kube" flag:"kube" default:"none" validate:"oneof=none embedded" doc:"host cluster: none, or embedded for a local Kubernetes control plane with SentinelConfigs"`

	Demo     DemoConfig     `key:"demo"`
	Sentinel SentinelConfig `key:"sentinel"`
	Adapters AdapterConfig  `key:"adapters"`
	Garden   GardenConfig   `key:"garden"`
	Console  ConsoleConfig  `key:"console"`

	// Changes configures sinks beside the timeline of the fleet API.
	Changes changes.Config `key:"change_events"`
}

// DemoConfig configures --demo.
type DemoConfig struct {
	Enabled       bool          `key:"enabled" flag:"demo" doc:"create a demo fleet and show its progress"`
	Clusters      int           `key:"clusters" flag:"demo-clusters" default:"12" validate:"min=1,max=10000" doc:"number of clusters in the demo fleet, each with two node pools"`
	Pace          time.Duration `key:"create_interval" flag:"demo-create-interval" default:"150ms" validate:"min=0" doc:"interval between the creation of demo clusters"`
	ExitWhenReady bool          `key:"exit_when_ready" flag:"exit-when-ready" doc:"print a summary and exit when the demo fleet is Ready"`
	Timeout       time.Duration `key:"timeout" flag:"timeout" default:"3m" validate:"gt=0" doc:"maximum time that --exit-when-ready waits"`
	printProgress bool          // print progress, because the log has only warnings
	View          string        `key:"view" flag:"view" default:"auto" validate:"oneof=auto live log" doc:"output of the demo: live (terminal view), log (log lines) or auto"`
}

// SentinelConfig holds the intervals of the two sentinels, short enough to watch.
type SentinelConfig struct {
	PollInterval   time.Duration `key:"poll_interval" flag:"poll-interval" default:"1s" validate:"gt=0" doc:"poll interval of the sentinels"`
	MaxAgeNotReady time.Duration `key:"max_age_not_ready" flag:"max-age-not-ready" default:"3s" validate:"gt=0" doc:"maximum age of the last report of a resource that is not Ready"`
	MaxAgeReady    time.Duration `key:"max_age_ready" flag:"max-age-ready" default:"30m" validate:"gt=0" doc:"maximum age of the last report of a Ready resource"`
}

// AdapterConfig configures the sample adapters.
type AdapterConfig struct {
	Enabled     bool          `key:"enabled" flag:"adapters" default:"true" doc:"run the three sample adapters"`
	Latency     time.Duration `key:"latency" flag:"adapter-latency" default:"400ms" validate:"min=0" doc:"average duration of a sample adapter's work"`
	FailureRate float64       `key:"failure_rate" flag:"adapter-failure-rate" default:"0.1" validate:"min=0,lt=1" doc:"fraction of the sample adapters' work that fails at first, 0 to 1"`
	Seed        uint64        `key:"seed" flag:"adapter-seed" default:"1" doc:"random seed of the sample adapters"`
}

// ConsoleConfig configures the web console.
type ConsoleConfig struct {
	Enabled bool   `key:"enabled" flag:"console" default:"true" doc:"run the web console"`
	Addr    string `key:"addr" env:"CONSOLE_LISTEN_ADDRESS" flag:"console-listen-address" default:"127.0.0.1:8082" validate:"required" doc:"listen address of the web console, host:port"`
}

// OverriddenDefaults returns the defaults that differ from those of the parts.
func OverriddenDefaults() Config {
	var cfg Config
	cfg.MetricsAddr = "127.0.0.1:8081"
	cfg.HealthAddr = "127.0.0.1:8081"
	cfg.Log.Format = "text"
	cfg.API = apiapp.OverriddenDefaults().Part
	return cfg
}

// validateSettings rejects conflicting settings.
func (c Config) validateSettings() error {
	switch {
	case c.Demo.ExitWhenReady && !c.Demo.Enabled:
		return errors.New("--exit-when-ready requires --demo")
	case c.API.Auth.Mode != auth.ModeNone || c.API.Server.TLSCertFile != "":
		return errors.New("'fleetloop up' does not support authentication and TLS: turn them off, or run fleet-api and sentinel separately")
	}
	return nil
}

// quietLogIfExitWhenReady reduces the log to warnings and progress lines for a run that ends when ready. It keeps
// the log if a level is set or the log goes to a file.
func (c Config) quietLogIfExitWhenReady(report *settings.Report, env Env) Config {
	if !c.Demo.ExitWhenReady || c.Demo.isLive(env) {
		return c
	}
	for _, o := range report.Origins() {
		if o.Key == "log.level" && o.Source == settings.FromDefault {
			c.Log.Level = "warn"
			c.Demo.printProgress = true
		}
	}
	return c
}

// isLive reports whether the demo paints on the terminal.
func (c DemoConfig) isLive(env Env) bool {
	return c.Enabled && (c.View == "live" || c.View == "auto" && env.isDrawable())
}

func (c Config) listenAddresses() []httpserver.Address {
	list := []httpserver.Address{
		{Name: "fleet API", Addr: c.API.Server.Addr, Flag: "--listen-address"},
		{Name: "health", Addr: c.HealthAddr, Flag: "--health-probe-bind-address"},
		{Name: "metrics", Addr: c.MetricsAddr, Flag: "--metrics-bind-address"},
	}
	if c.Console.Enabled {
		list = append(list, httpserver.Address{Name: "console", Addr: c.Console.Addr, Flag: "--console-listen-address"})
	}
	if c.NATS.Port != 0 { // zero is any free port
		addr := net.JoinHostPort(cmp.Or(c.NATS.Host, "127.0.0.1"), strconv.Itoa(c.NATS.Port))
		list = append(list, httpserver.Address{Name: "NATS", Addr: addr, Flag: "--nats-port"})
	}
	return list
}

// refusedFlags returns the flags of the fleet API that validateSettings rejects, so that they are
// hidden.
func refusedFlags() []string {
	return []string{"auth-mode", "auth-token-file", "tls-cert-file", "tls-key-file"}
}

// errNoStateDir means that no default data directory exists and explains how to set one.
var errNoStateDir = errors.New("no data directory: set --data-dir, XDG_STATE_HOME or HOME")

// stateDir returns the default data directory of the user.
func stateDir(env func(string) (string, bool)) (string, error) {
	if state, _ := env("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "fleetloop"), nil
	}
	home, _ := env("HOME")
	if home == "" {
		return "", errNoStateDir
	}
	return filepath.Join(home, ".local", "state", "fleetloop"), nil
}

// rootDataDir is the default data directory of root.
const rootDataDir = "/var/lib/fleetloop"

// usesDemoDir reports whether the data directory is temporary. A directory that the user names is not.
func (c Config) usesDemoDir() bool { return c.Demo.Enabled && c.DataDir == "" }

// createDataDir creates the data directory and returns a function that cleans it up.
func (c Config) createDataDir(env func(string) (string, bool)) (dir string, cleanup func() error, err error) {
	switch {
	case c.usesDemoDir():
		return createDemoDirAndRemoveAbandoned(os.TempDir())
	case c.DataDir != "":
		dir = c.DataDir
	case os.Geteuid() == 0:
		dir = rootDataDir
	default:
		if dir, err = stateDir(env); err != nil {
			return "", nil, err
		}
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", nil, err
	}
	return dir, func() error { return nil }, makeDataDir(dir)
}

// makeDataDir creates the data directory. PostgreSQL refuses to run as root, so root's directory
// can be entered, but not listed, by the user that runs it.
func makeDataDir(dir string) error {
	if os.Geteuid() != 0 {
		return os.MkdirAll(dir, 0o700)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // see above
		return err
	}
	if dir != rootDataDir {
		return nil // its mode is its owner's choice
	}
	return os.Chmod(dir, 0o711) //nolint:gosec // see above
}
