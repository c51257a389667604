// Package clusterworkerapp wires the cluster-worker: PostgreSQL, Gardener, the cluster sync, the
// status poller, and the status reports.
package clusterworkerapp

import (
	"cmp"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/settings"
)

type (
	// Worker embeds its settings in Part under a distinct name.
	Worker = clusterworker.Config
	// Status embeds its settings in Part under a distinct name.
	Status = poller.Config
	// Reports embeds its settings in Part under a distinct name.
	Reports = clusterworker.ReporterConfig
	// Process embeds its settings in Config under a distinct name.
	Process = process.Config
)

// Config is the configuration of the cluster-worker binary.
type Config struct {
	Part
	Process

	HealthPort int `key:"health_port" env:"HEALTH_PORT" flag:"health-port" validate:"min=0,max=65535" doc:"Port of /healthz, /readyz and /metrics; overrides the port of their bind addresses."`
}

// Part is the configuration of the cluster-worker within a process.
type Part struct {
	Worker
	Status
	Reports

	Mode            Mode `key:"gardener_mode" env:"GARDENER_MODE" flag:"gardener-mode" default:"mock" validate:"oneof=mock real" doc:"Gardener client: real, or mock (an in-memory Gardener for tests and demos)."`
	MaxShootNameLen int  `key:"gardener_max_shoot_name_len" env:"GARDENER_MAX_SHOOT_NAME_LEN" flag:"gardener-max-shoot-name-len" default:"21" validate:"min=1,max=63" doc:"Maximum length of a Shoot name. Gardener allows 21 characters for Shoot name and project name together."`

	MoveToGarden bool `key:"recreate_shoots" env:"CLUSTER_WORKER_RECREATE_SHOOTS" flag:"recreate-shoots" doc:"Recreate all Shoots in the configured garden although the Shoots of this database are in another garden, where they keep running. Without it, such a worker does not start syncing."`

	Shoots   manifest.Config `key:"shoots"`
	Gardener gardener.Config `key:"gardener"`
	Mock     MockConfig      `key:"mock"`

	API      APIConfig       `key:"hyperfleet_api"`
	Changes  changes.Config  `key:"change_events"`
	Database postgres.Config `key:"database"`
}

// Mode selects the kind of Gardener.
type Mode string

// The modes.
const (
	Mock Mode = "mock"
	Real Mode = "real"
)

// MockConfig configures the garden in memory.
type MockConfig struct {
	CreateTime time.Duration `key:"create_time" env:"GARDENER_MOCK_CREATE_TIME" default:"5s" validate:"min=0" doc:"Duration of the creation of a Shoot."`
	UpdateTime time.Duration `key:"update_time" env:"GARDENER_MOCK_UPDATE_TIME" default:"2s" validate:"min=0" doc:"Duration of an update of a Shoot."`
	DeleteTime time.Duration `key:"delete_time" env:"GARDENER_MOCK_DELETE_TIME" default:"3s" validate:"min=0" doc:"Duration of the deletion of a Shoot."`
	Latency    time.Duration `key:"latency" env:"GARDENER_MOCK_LATENCY" default:"0s" validate:"min=0" doc:"Latency of each call."`
	Versions   []string      `key:"kubernetes_versions" env:"GARDENER_MOCK_KUBERNETES_VERSIONS" default:"1.30.14,1.31.13,1.32.9,1.33.5,1.34.1,1.34.2,1.34.3,1.35.0,1.36.0" doc:"Kubernetes versions in the cloud profile; other versions are rejected. If empty, any version is accepted."`
	FailRate   float64       `key:"fail_rate" env:"GARDENER_MOCK_FAIL_RATE" default:"0" validate:"min=0,lt=1" doc:"Fraction of calls that fail at random, from 0 to 1."`
}

// APIConfig holds the address of the fleet API that receives status reports.
type APIConfig struct {
	Endpoint  string          `key:"endpoint" env:"HYPERFLEET_API_ENDPOINT" flag:"api-endpoint" doc:"URL of the fleet API that receives status reports of the adapter gardener. If empty, nothing is reported and the fleet API reads Shoot status from the database."`
	Timeout   time.Duration   `key:"timeout" env:"HYPERFLEET_API_TIMEOUT" default:"10s" validate:"gt=0" doc:"Timeout of one request."`
	Token     settings.Secret `key:"token" env:"HYPERFLEET_API_TOKEN" secret:"true" doc:"Bearer token. It must give access to all tenants."`
	TokenFile string          `key:"token_file" env:"HYPERFLEET_API_TOKEN_FILE" doc:"File with the bearer token; changes are picked up without a restart."`
	CAFile    string          `key:"ca_file" env:"HYPERFLEET_API_CA_FILE" doc:"File with CA certificates to verify the server (default: system CAs)."`
}

// defaultAddr is the address for health and metrics.
const defaultAddr = ":8097"

// OverriddenDefaults returns the defaults that differ from those of the parts.
func OverriddenDefaults() Config {
	var cfg Config
	cfg.MetricsAddr = defaultAddr
	cfg.HealthAddr = defaultAddr
	cfg.StopTimeout = 30 * time.Second
	cfg.Database.Role = postgres.RoleClusterWorker
	cfg.Database.MaxConns = 8
	cfg.Database.ApplicationName = "cluster-worker"
	return cfg
}

var (
	errNoDatabase = errors.New(
		"DATABASE_URL is not set: set it to the fleet API's database, postgres://user:password@host:5432/database",
	)
	errNoKubeconfig = errors.New(
		"GARDENER_KUBECONFIG is not set: GARDENER_MODE=real requires a kubeconfig of the garden cluster; set it, or unset GARDENER_MODE to use the mock",
	)
)

// fleetName is the default cluster name of change events. Each change of a worker concerns one
// cluster and carries the name of that cluster.
const fleetName = "fleet"

// sinksConfigWithDefaults returns the configuration of the sinks.
func (c Part) sinksConfigWithDefaults() changes.Config {
	cfg := c.Changes
	cfg.ClusterName = cmp.Or(cfg.ClusterName, fleetName)
	return cfg
}

// validateWithTrialWorker rejects conflicting settings.
func (c Part) validateWithTrialWorker() error {
	switch {
	case c.Database.URL == "":
		return errNoDatabase
	case c.Mode == Real && c.Gardener.Kubeconfig == "":
		return errNoKubeconfig
	}
	return c.buildAndDiscardTrialWorker(prometheus.NewRegistry())
}
