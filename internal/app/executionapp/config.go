// Package executionapp wires the execution controller: the host cluster, the
// policies, the checks, the gate, the guard of approvals, the audit in
// PostgreSQL, and the operator that carries executions out.
package executionapp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/gate"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/operator"
	"github.com/fleetloop/fleetloop/internal/execution/outbox"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/policy"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/migrations"
)

// Process lends its settings to Config under a name of its own.
type Process = process.Config

// Config is the configuration of the execution-controller binary.
type Config struct {
	Part
	Process
}

// Part is the configuration of the execution controller within a process.
type Part struct {
	Kube kube.Config `key:"kubernetes"`

	Namespace string `key:"namespace" env:"EXECUTOR_NAMESPACE" flag:"namespace" doc:"Namespace of the executions, their Jobs and the accounts of the actions (default: that of the pod, else kubernaut-executor)."`
	Cluster   string `key:"cluster_name" env:"CLUSTER_NAME" flag:"cluster-name" default:"local" validate:"required" doc:"What this cluster is called in policies and in the audit. Clusters that share a database have different names."`
	DryRun    bool   `key:"dry_run" env:"DRY_RUN" flag:"dry-run" doc:"Try every execution out, and execute none."`
	Elect     bool   `key:"leader_elect" env:"LEADER_ELECT" flag:"leader-elect" default:"true" doc:"Have one replica at a time work, by a Lease."`

	Runner RunnerConfig `key:"runner"`
	Checks CheckConfig  `key:"checks"`
	Policy PolicyConfig `key:"policy"`
	Gate   GateConfig   `key:"gate"`
	Times  TimesConfig  `key:"times"`
	Guard  GuardConfig  `key:"guard"`
	Audit  AuditConfig  `key:"audit"`

	Changes changes.Config `key:"change_events"`

	Database postgres.Config `key:"database"`
}

// CheckConfig says what is checked, and how.
type CheckConfig struct {
	DryRunExecutor      string   `key:"dry_run_executor" env:"DRY_RUN_EXECUTOR" flag:"dry-run-executor" default:"inline" validate:"oneof=inline job" doc:"Where dry runs are made: inline, in the controller by a short-lived token of the action's account, or in a job."`
	ProtectedNamespaces []string `key:"protected_namespaces" env:"PROTECTED_NAMESPACES" flag:"protected-namespaces" doc:"Namespaces that no action touches, beside kube-system, kube-public, kube-node-lease and the executions' own."`
	EnvironmentLabel    string   `key:"environment_label" env:"ENVIRONMENT_LABEL" flag:"environment-label" default:"environment" validate:"required" doc:"Label of namespaces that names their environment. The shipped policies treat a namespace without it as production."`
}

// PolicyConfig says where the policies are.
type PolicyConfig struct {
	ConfigMap string        `key:"config_map" env:"POLICY_CONFIG_MAP" flag:"policy-configmap" default:"safety-policies" validate:"required" doc:"ConfigMap with the policies. Its annotation kubernaut.io/policy-mode, if there is one, wins over the mode that is set here."`
	Mode      string        `key:"mode" env:"POLICY_MODE" flag:"policy-mode" default:"enforce" validate:"oneof=enforce warn audit" doc:"What a denial does: enforce ends the execution, warn says so, audit records it."`
	Timeout   time.Duration `key:"timeout" env:"POLICY_EVALUATION_TIMEOUT" flag:"policy-evaluation-timeout" default:"5s" validate:"gt=0" doc:"How long one decision may take."`
}

// GateConfig says how much may happen at once.
type GateConfig struct {
	MaxConcurrent   int            `key:"max_concurrent" env:"MAX_CONCURRENT_EXECUTIONS" flag:"max-concurrent" default:"10" validate:"min=1" doc:"Executions at a time that change something. As many may only read at the same time."`
	MaxPerNamespace int            `key:"max_per_namespace" env:"MAX_CONCURRENT_PER_NAMESPACE" flag:"max-per-namespace" default:"0" validate:"min=0" doc:"Executions at a time in one target namespace; 0 is any number."`
	MaxPerRequester int            `key:"max_per_requester" env:"MAX_CONCURRENT_PER_REQUESTER" flag:"max-per-requester" default:"0" validate:"min=0" doc:"Executions at a time of one requester; 0 is half of max_concurrent."`
	MaxPerAction    map[string]int `key:"max_per_action" env:"MAX_CONCURRENT_PER_ACTION" flag:"max-per-action" doc:"Executions of an action at a time, such as drain_node=1."`
	MaxNodePercent  int            `key:"max_node_percent" env:"MAX_NODE_PERCENT" flag:"max-node-percent" default:"10" validate:"min=1,max=100" doc:"Part of the nodes that actions on nodes may be at at a time; one is always allowed."`
	Cooldown        time.Duration  `key:"cooldown" env:"EXECUTION_COOLDOWN" flag:"cooldown" default:"0s" validate:"min=0" doc:"Pause between two executions of the same action on the same target. Rollbacks need none."`
	MaxFailures     int            `key:"max_failures" env:"MAX_FAILURES" flag:"max-failures" default:"5" validate:"min=0" doc:"How often an action may fail on a target within failure_window before more of them are refused."`
	FailureWindow   time.Duration  `key:"failure_window" env:"FAILURE_WINDOW" flag:"failure-window" default:"1h" validate:"gt=0" doc:"See max_failures."`
	QueueTimeout    time.Duration  `key:"queue_timeout" env:"QUEUE_TIMEOUT" flag:"queue-timeout" default:"10m" validate:"gt=0" doc:"How long an execution waits for its turn."`
}

// TimesConfig says how long things may take, or are kept.
type TimesConfig struct {
	Approval       time.Duration `key:"approval_timeout" env:"APPROVAL_TIMEOUT" flag:"approval-timeout" default:"1h" validate:"gt=0" doc:"How long an approval is waited for, unless the execution says so itself."`
	RollbackWindow time.Duration `key:"rollback_window" env:"ROLLBACK_WINDOW" flag:"rollback-window" default:"5m" validate:"gte=0" doc:"How long an execution stays rollback_ready unless its parent finalizes it; 0 ends it at once, with its way back recorded."`
	Retention      time.Duration `key:"retention" env:"EXECUTION_RETENTION" flag:"retention" default:"24h" validate:"gt=0" doc:"How long an execution is kept after its end, once its audit is durable."`
	JobRetention   time.Duration `key:"job_retention" env:"JOB_RETENTION" flag:"job-retention" default:"5m" validate:"gt=0" doc:"How long a Job is kept after its result is stored."`
}

// GuardConfig says whether the shipped admission policies are needed, and who is
// whom for them.
type GuardConfig struct {
	Mode        string        `key:"mode" env:"GUARD" flag:"guard" default:"required" validate:"oneof=required off" doc:"Whether executions need the shipped admission policies: required refuses those that were created while the policies were not in force; off lets anybody ask in anybody's name, and counts no approval."`
	Propagation time.Duration `key:"propagation" env:"GUARD_PROPAGATION" flag:"guard-propagation" default:"30s" validate:"gt=0" doc:"How long an API server may take to go by admission policies that were created or changed. Nothing is accepted before."`

	User              string   `key:"controller_user" env:"CONTROLLER_USER" flag:"controller-user" doc:"User that the controller is for the Kubernetes API (default: the ServiceAccount kubernaut-execution-controller of its namespace)."`
	PolicyAdmins      string   `key:"policy_admins" env:"POLICY_ADMINS" flag:"policy-admins" doc:"Group that may change the policies and the emergency stop."`
	TrustedRequesters []string `key:"trusted_requesters" env:"TRUSTED_REQUESTERS" flag:"trusted-requesters" doc:"Users who may ask in the name of others."`
}

// AuditConfig says where the audit is kept.
type AuditConfig struct {
	Mode      string        `key:"mode" env:"AUDIT" flag:"audit" default:"postgres" validate:"oneof=postgres off" doc:"Where the audit is kept: postgres, or off, nowhere."`
	Retention time.Duration `key:"retention" env:"AUDIT_RETENTION" flag:"audit-retention" default:"2160h" validate:"gt=0" doc:"How long the audit is kept. It goes a month at a time, and the database lets go of nothing younger than 30 days unless its owner says so."`
}

const (
	guardOff      = "off"
	auditPostgres = "postgres"
	defaultAddr   = ":8098"
)

// Defaults are the defaults that differ from those of the parts.
func Defaults() Config {
	var cfg Config
	cfg.MetricsAddr = defaultAddr
	cfg.HealthAddr = defaultAddr
	cfg.StopTimeout = 30 * time.Second
	cfg.Kube.QPS, cfg.Kube.Burst = 1000, 2000 // the API server has its own fairness
	cfg.Database.Role = migrations.RoleExecutionController
	cfg.Database.MaxConns = 4
	cfg.Database.ApplicationName = binary
	return cfg
}

var (
	errNoDatabase = errors.New("DATABASE_URL is not set; set it to postgres://user:password@host:5432/database, for the audit (or leave the audit out with --audit=off)")
	errNoImage    = errors.New("there is no image for the Jobs: set RUNNER_IMAGE or --runner-image to that of action-runner")
)

// check refuses settings that do not go together.
func (c Part) check() error {
	if c.Audit.Mode == auditPostgres && c.Database.URL == "" {
		return errNoDatabase
	}
	if c.Runner.Image == "" {
		return errNoImage
	}
	for _, name := range slices.Concat(c.Runner.Inline, keys(c.Gate.MaxPerAction)) {
		switch a, known := action.Find(name); {
		case !known:
			return fmt.Errorf("there is no action %q: 'fleetloop exec actions' lists them", name)
		case a.Name != name:
			return fmt.Errorf("action %q is called %q here", name, a.Name)
		}
	}
	return c.Runner.check()
}

// sinks are those that are told of changes.
func (c Part) sinks() changes.Config {
	cfg := c.Changes
	cfg.ClusterName = cmp.Or(cfg.ClusterName, c.Cluster)
	return cfg
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// operator leaves half of the time to stop to the clients of the sinks.
func (c Part) operator(stop time.Duration) operator.Config {
	cfg := operator.Config{
		Namespace: c.Namespace, Job: c.job(), Inline: c.Runner.Inline, DefaultMode: v1alpha1.ExecutionMode(c.Runner.DefaultMode), DryRun: c.DryRun,
		ApprovalTimeout: c.Times.Approval, RollbackWindow: c.Times.RollbackWindow, TTL: c.Times.Retention, JobTTL: c.Times.JobRetention,
		Audited: c.Audit.Mode == auditPostgres,
		Outbox: outbox.Config{
			Drain: min(cmp.Or(c.Changes.ShutdownTimeout, changeevent.DefaultShutdownTimeout), cmp.Or(stop, lifecycle.DefaultStopTimeout)/2),
		},
	}
	if c.Elect {
		cfg.Leader = "fleetloop-execution-controller"
	}
	return cfg
}

func (c Part) checks() check.Config {
	return check.Config{
		Namespace: c.Namespace, ClusterName: c.Cluster, DryRunExecutor: c.Checks.DryRunExecutor,
		ProtectedNamespaces: c.Checks.ProtectedNamespaces, EnvironmentLabel: c.Checks.EnvironmentLabel,
	}
}

func (c Part) gate() gate.Config {
	return gate.Config{
		MaxConcurrent: c.Gate.MaxConcurrent, MaxPerNamespace: c.Gate.MaxPerNamespace, MaxPerAction: c.Gate.MaxPerAction,
		MaxPerRequester: cmp.Or(c.Gate.MaxPerRequester, max(1, c.Gate.MaxConcurrent/2)),
		MaxNodePercent:  c.Gate.MaxNodePercent, Cooldown: c.Gate.Cooldown, MaxFailures: c.Gate.MaxFailures,
		Window: c.Gate.FailureWindow, QueueTimeout: c.Gate.QueueTimeout,
	}
}

func (c Part) guard() guard.Options {
	return guard.Options{
		Namespace: c.Namespace, ControllerUser: c.Guard.User, PolicyConfigMap: c.Policy.ConfigMap,
		PolicyAdmins: c.Guard.PolicyAdmins, TrustedRequesters: c.Guard.TrustedRequesters,
	}
}

func (c Part) mode(annotation string) policy.Mode {
	return policy.Mode(cmp.Or(annotation, c.Policy.Mode))
}
