// Package executionapp wires the execution controller.
//
// Its parts are the host cluster, the policies, the checks, the gate, the approval guard, the audit
// in PostgreSQL, and the operator that runs executions.
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
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/operator"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/policy"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// Process embeds its settings in Config under a distinct name.
type Process = process.Config

// Config is the configuration of the execution-controller binary.
type Config struct {
	Part
	Process
}

// Part is the configuration of the execution controller within a process.
type Part struct {
	Kube kube.Config `key:"kubernetes"`

	Namespace string `key:"namespace" env:"EXECUTOR_NAMESPACE" flag:"namespace" doc:"Namespace of the executions, their Jobs and the service accounts of the actions (default: that of the pod, else kubernaut-executor)."`
	Cluster   string `key:"cluster_name" env:"CLUSTER_NAME" flag:"cluster-name" default:"local" validate:"required" doc:"Name of this cluster in policies and in the audit. Must be unique among clusters that share a database."`
	DryRun    bool   `key:"dry_run" env:"DRY_RUN" flag:"dry-run" doc:"Run all executions as dry runs only."`
	Elect     bool   `key:"leader_elect" env:"LEADER_ELECT" flag:"leader-elect" default:"true" doc:"Use leader election with a Lease, so that one replica is active at a time."`

	Runner RunnerConfig `key:"runner"`
	Checks CheckConfig  `key:"checks"`
	Policy PolicyConfig `key:"policy"`
	Gate   GateConfig   `key:"limits"`
	Times  TimesConfig  `key:"lifecycle"`
	Guard  GuardConfig  `key:"admission_policies"`
	Audit  AuditConfig  `key:"audit"`

	Changes changes.Config `key:"change_events"`

	Database postgres.Config `key:"database"`
}

// CheckConfig selects the checks and how they run.
type CheckConfig struct {
	DryRunExecutor      string   `key:"dry_run_executor" env:"DRY_RUN_EXECUTOR" flag:"dry-run-executor" default:"inline" validate:"oneof=inline job" doc:"Where dry runs execute: inline (in the controller, with a short-lived token of the action's service account) or job."`
	ProtectedNamespaces []string `key:"protected_namespaces" env:"PROTECTED_NAMESPACES" flag:"protected-namespaces" doc:"Namespaces that actions cannot change, in addition to kube-system, kube-public, kube-node-lease and the namespace of the executions."`
	EnvironmentLabel    string   `key:"environment_label" env:"ENVIRONMENT_LABEL" flag:"environment-label" default:"environment" validate:"required" doc:"Namespace label with the environment. The shipped policies treat namespaces without it as production."`
}

// PolicyConfig names the source of the policies.
type PolicyConfig struct {
	ConfigMap string        `key:"config_map" env:"POLICY_CONFIG_MAP" flag:"policy-configmap" default:"safety-policies" validate:"required" doc:"ConfigMap with the safety policies. Its annotation kubernaut.io/policy-mode overrides policy.mode."`
	Mode      string        `key:"mode" env:"POLICY_MODE" flag:"policy-mode" default:"enforce" validate:"oneof=enforce warn audit" doc:"Effect of a denial: enforce fails the execution, warn adds a warning, audit only records it."`
	Timeout   time.Duration `key:"timeout" env:"POLICY_EVALUATION_TIMEOUT" flag:"policy-evaluation-timeout" default:"5s" validate:"gt=0" doc:"Timeout of one policy evaluation."`
}

// GateConfig limits how much may run at once.
type GateConfig struct {
	MaxConcurrent   int            `key:"max_concurrent" env:"MAX_CONCURRENT_EXECUTIONS" flag:"max-concurrent" default:"10" validate:"min=1" doc:"Maximum number of concurrent executions. Read-only executions have a separate limit of the same size."`
	MaxPerNamespace int            `key:"max_per_namespace" env:"MAX_CONCURRENT_PER_NAMESPACE" flag:"max-per-namespace" default:"0" validate:"min=0" doc:"Maximum number of concurrent executions per target namespace; 0 is unlimited."`
	MaxPerRequester int            `key:"max_per_requester" env:"MAX_CONCURRENT_PER_REQUESTER" flag:"max-per-requester" default:"0" validate:"min=0" doc:"Maximum number of concurrent executions per requester; 0 is half of max_concurrent. Executions without a requester share half of this number, at least 1."`
	MaxPerAction    map[string]int `key:"max_per_action" env:"MAX_CONCURRENT_PER_ACTION" flag:"max-per-action" doc:"Maximum number of concurrent executions per action, for example drain_node=1."`
	MaxNodePercent  int            `key:"max_node_percent" env:"MAX_NODE_PERCENT" flag:"max-node-percent" default:"10" validate:"min=1,max=100" doc:"Maximum percentage of nodes that actions can use at a time, including cordoned nodes. One node is always allowed."`
	Cooldown        time.Duration  `key:"cooldown" env:"EXECUTION_COOLDOWN" flag:"cooldown" default:"0s" validate:"min=0" doc:"Minimum time between two executions of the same action on the same target. Rollbacks are exempt."`
	MaxFailures     int            `key:"max_failures" env:"MAX_FAILURES" flag:"max-failures" default:"5" validate:"min=0" doc:"Number of consecutive failures of an action on a target within failure_window that opens the circuit breaker. 0 disables it."`
	FailureWindow   time.Duration  `key:"failure_window" env:"FAILURE_WINDOW" flag:"failure-window" default:"1h" validate:"gt=0" doc:"Time window of max_failures."`
	QueueTimeout    time.Duration  `key:"queue_timeout" env:"QUEUE_TIMEOUT" flag:"queue-timeout" default:"10m" validate:"gt=0" doc:"Maximum time in the queue before an execution fails."`
}

// TimesConfig holds deadlines and retention times.
type TimesConfig struct {
	Approval       time.Duration `key:"approval_timeout" env:"APPROVAL_TIMEOUT" flag:"approval-timeout" default:"1h" validate:"gt=0" doc:"Default deadline for approvals. spec.approvalTimeout overrides it."`
	RollbackWindow time.Duration `key:"rollback_window" env:"ROLLBACK_WINDOW" flag:"rollback-window" default:"5m" validate:"gte=0" doc:"Time that an execution stays rollback_ready unless it is finalized earlier; 0 ends the phase at once. The rollback information remains."`
	Retention      time.Duration `key:"retention" env:"EXECUTION_RETENTION" flag:"retention" default:"24h" validate:"gt=0" doc:"Retention of an execution after its end, once its audit is written."`
	JobRetention   time.Duration `key:"job_retention" env:"JOB_RETENTION" flag:"job-retention" default:"5m" validate:"gt=0" doc:"Retention of a Job after its result is stored."`
}

// GuardConfig sets whether the shipped admission policies are required, and the identities that
// they trust.
type GuardConfig struct {
	Mode        string        `key:"mode" env:"ADMISSION_POLICIES" flag:"admission-policies" default:"required" validate:"oneof=required off" doc:"Whether the shipped admission policies are required. required fails executions created while the policies were not in force. off accepts unverified requesters and no approvals."`
	Propagation time.Duration `key:"propagation_delay" env:"ADMISSION_POLICY_PROPAGATION_DELAY" flag:"admission-policy-propagation-delay" default:"30s" validate:"gt=0" doc:"Time that API servers need to enforce created or changed admission policies. No execution is accepted before."`

	User              string   `key:"controller_user" env:"CONTROLLER_USER" flag:"controller-user" doc:"Kubernetes user name of the controller (default: ServiceAccount kubernaut-execution-controller in its namespace)."`
	PolicyAdmins      string   `key:"policy_admins" env:"POLICY_ADMINS" flag:"policy-admins" doc:"Group that is allowed to change the safety policies and the emergency stop."`
	TrustedRequesters []string `key:"trusted_requesters" env:"TRUSTED_REQUESTERS" flag:"trusted-requesters" doc:"Users that are allowed to set spec.requestedBy to another user."`
}

// AuditConfig selects the store of the audit.
type AuditConfig struct {
	Mode      string        `key:"mode" env:"AUDIT" flag:"audit" default:"postgres" validate:"oneof=postgres off" doc:"Where the audit is stored: postgres, or off for no audit."`
	Retention time.Duration `key:"retention" env:"AUDIT_RETENTION" flag:"audit-retention" default:"2160h" validate:"gt=0" doc:"Retention of the audit, pruned by month. The database rejects less than its minimum, by default 30 days."`
}

const (
	guardOff      = "off"
	auditPostgres = "postgres"
	defaultAddr   = ":8098"
)

// OverriddenDefaults returns the defaults that differ from those of the parts.
func OverriddenDefaults() Config {
	var cfg Config
	cfg.MetricsAddr = defaultAddr
	cfg.HealthAddr = defaultAddr
	cfg.StopTimeout = 30 * time.Second
	cfg.Kube.QPS = 1000 // the API server has its own flow control
	cfg.Kube.Burst = 2000
	cfg.Database.Role = postgres.RoleExecutionController
	cfg.Database.MaxConns = 4
	cfg.Database.ApplicationName = binary
	return cfg
}

var (
	errNoDatabase = errors.New(
		"DATABASE_URL is not set: set it to postgres://user:password@host:5432/database for the audit, or disable the audit with --audit=off",
	)
	errNoImage = errors.New("no runner image is configured: set RUNNER_IMAGE or --runner-image to the image of action-runner")
)

// validateSettings rejects conflicting settings.
func (c Part) validateSettings() error {
	if c.Audit.Mode == auditPostgres && c.Database.URL == "" {
		return errNoDatabase
	}
	if c.Runner.Image == "" {
		return errNoImage
	}
	for _, name := range slices.Concat(c.Runner.Inline, sortedKeys(c.Gate.MaxPerAction)) {
		a, known := action.Find(name)
		switch {
		case !known:
			return fmt.Errorf("unknown action %q: 'fleetloop exec actions' lists the available actions", name)
		case a.Name != name:
			return fmt.Errorf("action %q is an alias: use %q", name, a.Name)
		}
	}
	return c.Runner.validateSettings()
}

// toSinksConfig returns the configuration of the sinks.
func (c Part) toSinksConfig() changes.Config {
	cfg := c.Changes
	cfg.ClusterName = cmp.Or(cfg.ClusterName, c.Cluster)
	return cfg
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// toOperatorConfig returns the configuration of the operator in a process whose parts may take stopTimeout to stop.
func (c Part) toOperatorConfig(stopTimeout time.Duration) operator.Config {
	// The outbox drains within half of the timeout. The other half is for the clients of the sinks.
	drain := min(
		cmp.Or(c.Changes.ShutdownTimeout, changeevent.DefaultShutdownTimeout),
		cmp.Or(stopTimeout, lifecycle.DefaultStopTimeout)/2,
	)
	cfg := operator.Config{
		Namespace:       c.Namespace,
		Job:             c.toJobOptions(),
		Inline:          c.Runner.Inline,
		DefaultMode:     v1alpha1.ExecutionMode(c.Runner.DefaultMode),
		DryRun:          c.DryRun,
		ApprovalTimeout: c.Times.Approval,
		RollbackWindow:  c.Times.RollbackWindow,
		TTL:             c.Times.Retention,
		JobTTL:          c.Times.JobRetention,
		Audited:         c.Audit.Mode == auditPostgres,
		Outbox:          operator.OutboxConfig{Drain: drain},
	}
	if c.Elect {
		cfg.Leader = "fleetloop-execution-controller"
	}
	return cfg
}

func (c Part) toCheckConfig() check.Config {
	return check.Config{
		Namespace:           c.Namespace,
		ClusterName:         c.Cluster,
		DryRunExecutor:      c.Checks.DryRunExecutor,
		ProtectedNamespaces: c.Checks.ProtectedNamespaces,
		EnvironmentLabel:    c.Checks.EnvironmentLabel,
	}
}

func (c Part) toGateConfig() execution.GateConfig {
	return execution.GateConfig{
		MaxConcurrent:   c.Gate.MaxConcurrent,
		MaxPerNamespace: c.Gate.MaxPerNamespace,
		MaxPerAction:    c.Gate.MaxPerAction,
		MaxPerRequester: cmp.Or(c.Gate.MaxPerRequester, max(1, c.Gate.MaxConcurrent/2)),
		MaxNodePercent:  c.Gate.MaxNodePercent,
		Cooldown:        c.Gate.Cooldown,
		MaxFailures:     c.Gate.MaxFailures,
		Window:          c.Gate.FailureWindow,
		QueueTimeout:    c.Gate.QueueTimeout,
	}
}

func (c Part) toGuardOptions() guard.Options {
	return guard.Options{
		Namespace:         c.Namespace,
		ControllerUser:    c.Guard.User,
		PolicyConfigMap:   c.Policy.ConfigMap,
		PolicyAdmins:      c.Guard.PolicyAdmins,
		TrustedRequesters: c.Guard.TrustedRequesters,
	}
}

func (c Part) selectPolicyMode(annotation string) policy.Mode {
	return policy.Mode(cmp.Or(annotation, c.Policy.Mode))
}
