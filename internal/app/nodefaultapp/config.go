// Package nodefaultapp wires the node fault controller.
//
// Its parts are the intake of reports, the rules, the budget, the operator that manages nodes, the
// janitor that reboots and terminates them, and the sinks.
package nodefaultapp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/nodefault/budget"
	"github.com/fleetloop/fleetloop/internal/nodefault/drain"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
	"github.com/fleetloop/fleetloop/internal/nodefault/janitor"
	"github.com/fleetloop/fleetloop/internal/nodefault/operator"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
	"github.com/fleetloop/fleetloop/internal/nodefault/remediation"
	"github.com/fleetloop/fleetloop/internal/nodefault/rules"
)

// Process embeds its settings in Config under a distinct name.
type Process = process.Config

// Config is the configuration of the node-fault-controller binary.
type Config struct {
	Part
	Process
}

// Part is the configuration of the node fault controller within a process.
type Part struct {
	Kube kube.Config `key:"kubernetes"`

	Roles     []string      `key:"roles" env:"ROLES" flag:"roles" default:"controller,intake,janitor" validate:"dive,oneof=controller intake janitor" doc:"Roles of this process: controller (quarantines, drains and releases nodes), intake (receives reports over HTTP and gRPC), janitor (reboots and terminates nodes; only this role needs the permissions for it)."`
	Namespace string        `key:"namespace" env:"NAMESPACE" flag:"namespace" doc:"Namespace of the Leases, and of Jobs unless set otherwise (default: the namespace of the pod, or else fleetloop-system)."`
	Cluster   string        `key:"cluster_name" env:"CLUSTER_NAME" flag:"cluster-name" default:"local" validate:"required" doc:"Name of this cluster in change events."`
	DryRun    bool          `key:"dry_run" env:"DRY_RUN" flag:"dry-run" doc:"Report actions without changing any node."`
	Elect     bool          `key:"leader_elect" env:"LEADER_ELECT" flag:"leader-elect" default:"true" doc:"Elect a leader by a Lease, so that one replica acts. All replicas receive reports."`
	Retention time.Duration `key:"retention" env:"NODE_FAULT_RETENTION" flag:"retention" default:"24h" validate:"gt=0" doc:"How long a NodeFault is retained after it is over."`

	Conditions  intake.ConditionConfig `key:"conditions"`
	Intake      IntakeConfig           `key:"intake"`
	Rules       rules.Config           `key:"rules" validate:"dive" doc:"Rules that map faults to actions; empty means the built-in rules."`
	Quarantine  quarantine.Config      `key:"quarantine"`
	Budget      budget.Config          `key:"budget"`
	Drain       drain.Config           `key:"drain"`
	Remediation RemediationConfig      `key:"remediation"`
	Janitor     JanitorConfig          `key:"janitor"`

	Changes changes.Config `key:"change_events"`
	Outbox  OutboxConfig   `key:"outbox"`
}

// The roles.
const (
	roleController = "controller"
	roleIntake     = "intake"
	roleJanitor    = "janitor"
)

func (c Part) hasRole(role string) bool { return slices.Contains(c.Roles, role) }

// IntakeConfig configures the intake of reports.
type IntakeConfig struct {
	Server httpserver.Config  `key:"server"`
	Auth   intake.AuthConfig  `key:"auth"`
	HTTP   intake.HTTPConfig  `key:"http"`
	GRPC   intake.GRPCConfig  `key:"grpc"`
	Store  intake.StoreConfig `key:"store"`
}

// RemediationConfig limits the number and duration of remediation attempts.
type RemediationConfig struct {
	RebootAttempts    int           `key:"reboot_attempts" env:"NODE_FAULT_REBOOT_ATTEMPTS" flag:"reboot-attempts" default:"2" validate:"min=1" doc:"Maximum number of reboots for the same faults, before the next remedy."`
	TerminateAttempts int           `key:"terminate_attempts" env:"NODE_FAULT_TERMINATE_ATTEMPTS" default:"1" validate:"min=1" doc:"Maximum number of attempts to terminate a node."`
	RebootTimeout     time.Duration `key:"reboot_timeout" env:"NODE_FAULT_REBOOT_TIMEOUT" flag:"reboot-timeout" default:"30m" validate:"gt=0" doc:"Timeout of a reboot, until the node is Ready with a new boot ID."`
	TerminateTimeout  time.Duration `key:"terminate_timeout" env:"NODE_FAULT_TERMINATE_TIMEOUT" default:"30m" validate:"gt=0" doc:"Timeout of the termination of a node."`
	VerifyTimeout     time.Duration `key:"verify_timeout" env:"NODE_FAULT_VERIFY_TIMEOUT" flag:"verify-timeout" default:"10m" validate:"gt=0" doc:"How long faults may persist after a reboot before the reboot counts as failed."`
	AfterFailedDrain  bool          `key:"after_failed_drain" env:"NODE_FAULT_REMEDIATE_AFTER_FAILED_DRAIN" default:"false" doc:"Repair a node whose drain failed, while pods are left on it."`
	RebootUnreachable bool          `key:"reboot_unreachable" env:"NODE_FAULT_REBOOT_UNREACHABLE" default:"false" doc:"Reboot a node whose drain failed because its kubelet is unreachable: all remaining pods are terminating and cannot end. They may still run, and are lost with the reboot. It does not allow a termination."`

	Verification VerificationConfig `key:"verification"`
}

// VerificationConfig configures the test of a node after a reboot.
type VerificationConfig struct {
	Image          string   `key:"image" env:"NODE_FAULT_VERIFICATION_IMAGE" doc:"Image of a Job that tests a node after a reboot, once its faults are gone. Exit code 0 means passed. Empty disables the test."`
	Command        []string `key:"command" doc:"Command of the test Job; empty means the entrypoint of the image."`
	ServiceAccount string   `key:"service_account" doc:"ServiceAccount of the test Job."`
}

// OutboxConfig configures the retries for sinks with guaranteed delivery.
type OutboxConfig struct {
	Retry    time.Duration `key:"retry" env:"NODE_FAULT_OUTBOX_RETRY" default:"1s" validate:"gt=0" doc:"Initial delay before a failed change event is sent again. It doubles with every failure. It replaces change_events.retry for the events of nodes."`
	MaxRetry time.Duration `key:"max_retry" env:"NODE_FAULT_OUTBOX_MAX_RETRY" default:"5m" validate:"gt=0" doc:"Maximum delay before a failed change event is sent again. A longer Retry-After of the sink is respected."`
	MaxAge   time.Duration `key:"max_age" env:"NODE_FAULT_OUTBOX_MAX_AGE" default:"12h" validate:"gt=0" doc:"Age at which an undelivered change event expires."`
	Replay   []string      `key:"replay" env:"NODE_FAULT_OUTBOX_REPLAY" doc:"Sinks that receive the retained history of every node when they are added or enabled. Other sinks receive only new events."`
}

// JanitorConfig selects the providers that reboot and terminate nodes.
type JanitorConfig struct {
	RebootProvider     string        `key:"reboot_provider" env:"NODE_FAULT_REBOOT_PROVIDER" flag:"reboot-provider" default:"manual" validate:"oneof=none job webhook machine execution manual" doc:"Provider that reboots nodes: job (privileged Job on the node), webhook, machine (Cluster API), execution (KubernetesExecution), manual (a person) or none."`
	TerminateProvider  string        `key:"terminate_provider" env:"NODE_FAULT_TERMINATE_PROVIDER" flag:"terminate-provider" default:"manual" validate:"oneof=none webhook machine execution manual" doc:"Provider that terminates nodes: webhook, machine, execution, manual or none."`
	Retention          time.Duration `key:"retention" env:"NODE_ACTION_RETENTION" default:"24h" validate:"gt=0" doc:"How long a RebootNode or TerminateNode is retained after it ends."`
	ExcludedNodeLabels []string      `key:"excluded_node_labels" env:"NODE_ACTION_EXCLUDED_NODE_LABELS" doc:"Labels, as key or key=value, of nodes that are never rebooted or terminated."`

	Job       JobConfig       `key:"job"`
	Webhook   WebhookConfig   `key:"webhook"`
	Machine   MachineConfig   `key:"machine"`
	Execution ExecutionConfig `key:"execution"`
}

// JobConfig configures the job provider.
type JobConfig struct {
	Image          string   `key:"image" env:"NODE_REBOOT_IMAGE" flag:"reboot-image" doc:"Image of the Job that reboots a node, by digest. It must contain a shell, cat, date, sleep and sync."`
	Namespace      string   `key:"namespace" env:"NODE_REBOOT_NAMESPACE" doc:"Namespace of the Jobs, which must admit privileged pods (default: the namespace of the controller)."`
	Command        []string `key:"command" doc:"Command that reboots the host; empty means SysRq of the kernel."`
	HostPID        bool     `key:"host_pid" doc:"Let the command access the processes of the host."`
	ServiceAccount string   `key:"service_account" doc:"ServiceAccount of the Jobs."`
	PullSecrets    []string `key:"pull_secrets" doc:"Image pull Secrets."`
	PriorityClass  string   `key:"priority_class" default:"system-node-critical" doc:"PriorityClass of the pods."`
}

// WebhookConfig configures the webhook provider.
type WebhookConfig struct {
	URL                     string        `key:"url" env:"NODE_ACTION_WEBHOOK_URL" flag:"webhook-url" doc:"URL that receives the requests."`
	StatusURL               string        `key:"status_url" env:"NODE_ACTION_WEBHOOK_STATUS_URL" doc:"URL that returns the status of a request; empty means that the status is unknown."`
	NotReadyMeansTerminated bool          `key:"not_ready_means_terminated" doc:"Treat a terminated machine as gone when its node is not Ready, if status_url is empty."`
	TokenFile               string        `key:"token_file" env:"NODE_ACTION_WEBHOOK_TOKEN_FILE" doc:"File with the bearer token."`
	Timeout                 time.Duration `key:"timeout" default:"10s" validate:"gt=0" doc:"Timeout of a request."`
}

// MachineConfig configures the machine provider.
type MachineConfig struct {
	Version          string `key:"version" default:"v1beta1" doc:"API version of the group cluster.x-k8s.io."`
	RebootAnnotation string `key:"reboot_annotation" default:"cluster.x-k8s.io/remediate-machine" doc:"Annotation that makes Cluster API remediate a Machine."`
	Namespace        string `key:"namespace" doc:"Namespace of the Machines, if the node does not name one."`
	Kubeconfig       string `key:"kubeconfig" env:"NODE_ACTION_MACHINES_KUBECONFIG" doc:"kubeconfig file of the cluster that runs Cluster API, if it is another cluster."`
}

// ExecutionConfig configures the execution provider.
type ExecutionConfig struct {
	Namespace string         `key:"namespace" default:"kubernaut-executor" doc:"Namespace of the executions."`
	Reboot    ActionTemplate `key:"reboot"`
	Terminate ActionTemplate `key:"terminate"`
}

// ActionTemplate is an action of the catalogue.
type ActionTemplate struct {
	Action     string            `key:"action" doc:"Action of the catalogue."`
	Parameters map[string]string `key:"parameters" doc:"Parameters of the action. Placeholders: {node}, {node_uid}, {provider_id}, {boot_id}, {idempotency_key}, {action}, {object} and {force}."`
	Timeout    time.Duration     `key:"timeout" default:"0s" validate:"min=0" doc:"Timeout of the action; 0s means the timeout in the catalogue."`
}

const (
	defaultAddr       = ":8099"
	defaultIntakeAddr = ":8080"
)

// OverriddenDefaults returns the defaults that differ from those of the parts.
func OverriddenDefaults() Config {
	var cfg Config
	cfg.MetricsAddr = defaultAddr
	cfg.HealthAddr = defaultAddr
	cfg.Intake.Server.Addr = defaultIntakeAddr
	cfg.StopTimeout = 30 * time.Second
	cfg.Kube.QPS = 400 // the API server has its own flow control
	cfg.Kube.Burst = 800
	return cfg
}

// validateSettings rejects conflicting settings.
func (c Part) validateSettings() error {
	var errs []error
	if len(c.Roles) == 0 {
		errs = append(errs, errors.New("no role set: set ROLES to one or more of controller, intake, janitor"))
	}
	if _, err := rules.Compile(c.configuredRulesOrDefaults()); err != nil {
		errs = append(errs, fmt.Errorf("rules: %w", err))
	}
	if c.hasRole(roleJanitor) {
		for _, kind := range []string{c.Janitor.RebootProvider, c.Janitor.TerminateProvider} {
			switch janitor.ProviderKind(kind) {
			case janitor.ProviderJob:
				if c.Janitor.Job.Image == "" {
					errs = append(
						errs,
						errors.New("reboot provider job has no image: set NODE_REBOOT_IMAGE, or choose another NODE_FAULT_REBOOT_PROVIDER"),
					)
				}
			case janitor.ProviderWebhook:
				if c.Janitor.Webhook.URL == "" {
					errs = append(errs, errors.New("provider webhook has no URL: set NODE_ACTION_WEBHOOK_URL"))
				}
			case janitor.ProviderNone, janitor.ProviderMachine, janitor.ProviderExecution, janitor.ProviderManual:
			}
		}
	}
	return errors.Join(errs...)
}

func (c Part) configuredRulesOrDefaults() rules.Config {
	if len(c.Rules) == 0 {
		return rules.Defaults()
	}
	return c.Rules
}

func (c Part) toQuarantineConfig() quarantine.Config {
	cfg := c.Quarantine
	cfg.DryRun = c.DryRun
	return cfg
}

func (c Part) toBudgetConfig() budget.Config {
	cfg := c.Budget
	cfg.ControlPlane = cfg.ControlPlane || c.Quarantine.ControlPlane
	return cfg
}

// slack is added to the timeouts of the janitor while the controller waits for it. The janitor then
// reports first, with a more precise error.
const slack = 5 * time.Minute

func (c Part) toRemediationConfig() remediation.Config {
	r := c.Remediation
	return remediation.Config{
		RebootAttempts:    r.RebootAttempts,
		TerminateAttempts: r.TerminateAttempts,
		RebootTimeout:     r.RebootTimeout + slack,
		TerminateTimeout:  r.TerminateTimeout + slack,
		VerifyTimeout:     r.VerifyTimeout,
		AfterFailedDrain:  r.AfterFailedDrain,
		RebootUnreachable: r.RebootUnreachable,
		PodsStay:          c.Drain.MayLeavePods(),
	}
}

func (c Part) toJanitorConfig() janitor.Config {
	return janitor.Config{
		RebootDeadline:    c.Remediation.RebootTimeout,
		TerminateDeadline: c.Remediation.TerminateTimeout,
		TTL:               c.Janitor.Retention,
		ControlPlane:      c.Quarantine.ControlPlane,
		Excluded:          c.Janitor.ExcludedNodeLabels,
	}
}

// toSinksConfig returns the configuration of the sinks.
func (c Part) toSinksConfig() changes.Config {
	cfg := c.Changes
	cfg.ClusterName = cmp.Or(cfg.ClusterName, c.Cluster)
	return cfg
}

// toOutboxConfig returns the configuration of the outbox in a process whose parts may take stopTimeout to stop.
func (c Part) toOutboxConfig(stopTimeout time.Duration) operator.OutboxConfig {
	// The outbox drains within half of the timeout. The other half is for the clients of the sinks.
	drainTimeout := min(
		cmp.Or(c.Changes.ShutdownTimeout, changeevent.DefaultShutdownTimeout),
		cmp.Or(stopTimeout, lifecycle.DefaultStopTimeout)/2,
	)
	return operator.OutboxConfig{
		MaxAge:   c.Outbox.MaxAge,
		Retry:    c.Outbox.Retry,
		MaxRetry: c.Outbox.MaxRetry,
		Drain:    drainTimeout,
	}
}

func (c Part) toProviderConfig(kind string) janitor.ProviderConfig {
	j := c.Janitor
	return janitor.ProviderConfig{
		Kind: janitor.ProviderKind(kind),
		Job: janitor.JobConfig{
			Namespace:         cmp.Or(j.Job.Namespace, c.Namespace),
			Image:             j.Job.Image,
			Command:           j.Job.Command,
			HostPID:           j.Job.HostPID,
			ServiceAccount:    j.Job.ServiceAccount,
			PullSecrets:       j.Job.PullSecrets,
			PriorityClassName: j.Job.PriorityClass,
		},
		Webhook: janitor.WebhookConfig{
			URL:                     j.Webhook.URL,
			StatusURL:               j.Webhook.StatusURL,
			NotReadyMeansTerminated: j.Webhook.NotReadyMeansTerminated,
			TokenFile:               j.Webhook.TokenFile,
			Timeout:                 j.Webhook.Timeout,
		},
		Machine: janitor.MachineConfig{
			Version:          j.Machine.Version,
			RebootAnnotation: j.Machine.RebootAnnotation,
			Namespace:        j.Machine.Namespace,
		},
		Execution: janitor.ExecutionConfig{
			Namespace: j.Execution.Namespace,
			Reboot:    j.Execution.Reboot.toExecutionTemplate(),
			Terminate: j.Execution.Terminate.toExecutionTemplate(),
		},
	}
}

func (t ActionTemplate) toExecutionTemplate() janitor.ExecutionTemplate {
	parameters := make(map[string]any, len(t.Parameters))
	for name, value := range t.Parameters {
		parameters[name] = value
		var parsed any
		if json.Unmarshal([]byte(value), &parsed) != nil {
			continue
		}
		switch parsed.(type) {
		case float64, bool: // any other value stays a text
			parameters[name] = parsed
		}
	}
	return janitor.ExecutionTemplate{Action: t.Action, Parameters: parameters, Timeout: t.Timeout}
}
