// Package action is the catalogue of actions that an execution can request. It defines their
// parameters, required rights, planning, execution and rollback.
//
// An action is first planned from the live object, without changing it. The plan contains the exact
// requests to send. DryRun sends them with dryRun=All, and Execute sends them for real. Both use
// the service account of the action, wherever they run.
//
// Execute acts only on the object that was planned for: if its UID or a value in the "before" of
// the plan differs, it sends nothing. Requests sent by an earlier attempt of the same execution are
// recognised and not sent again.
package action

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// Risk is the potential damage of an action.
type Risk string

// The risks.
const (
	RiskLow      Risk = "low"
	RiskMedium   Risk = "medium"
	RiskHigh     Risk = "high"
	RiskCritical Risk = "critical"
)

// Scope is the scope of the objects of an action.
type Scope string

// The scopes. They determine the binding that the account of the action needs.
const (
	Namespaced Scope = "Namespaced"
	Cluster    Scope = "Cluster"
)

// An Action is an entry of the catalogue.
type Action struct {
	Name    string // such as scale_deployment
	Summary string // such as "Set how many replicas a Deployment has"
	Kubectl string // equivalent kubectl command, for documentation
	Aliases []string

	Kinds       []string // kinds of targets, such as Deployment
	Scope       Scope
	Permissions []Permission // exactly the rights that the account needs

	Timeout    time.Duration // default if the request sets none
	MaxTimeout time.Duration // upper limit for requests
	Retries    int32         // default if the request sets none
	Risk       Risk
	Idempotent bool   // can be retried
	Reversible bool   // has a rollback
	ReadOnly   bool   // changes nothing and has no dry run
	NoJob      bool   // runs nothing, such as notify_only
	Rollback   string // name of the rollback action, for documentation

	account string
	schema  []Parameter
	kind    kind
}

// A Permission is a right on the API of the target. It applies to the namespace of the target
// unless the fields below say otherwise.
type Permission struct {
	Group, Resource, Subresource string
	Verbs                        []string
	// ClusterScoped marks rights on cluster-scoped objects, such as nodes. It also marks rights on
	// objects of all namespaces, such as the Pods of a node.
	ClusterScoped bool
	// Executor marks rights in the namespace of the executions, whatever the namespace of the
	// target. An example are the Secrets that provide a value.
	Executor bool
	// Why is the purpose of the right.
	Why string
}

// A Parameter is a parameter of an action.
type Parameter struct {
	Name     string
	Type     string // string, integer, boolean, object, array, quantity, duration
	Required bool
	Default  string // as JSON; empty means none
	Doc      string
	Enum     []string
	Minimum  *int64
	Maximum  *int64
	Format   string // dns-label, dns-subdomain, label-key, image, …; empty means any
}

// ServiceAccount returns the name of the service account that runs the action.
func (a *Action) ServiceAccount() string {
	if a.account != "" {
		return a.account
	}
	return "kubernaut-action-" + strings.ReplaceAll(a.Name, "_", "-")
}

// Parameters returns the parameters of the action, in the order of the documentation.
func (a *Action) Parameters() []Parameter { return a.schema }

// A Subject is the execution for which a plan is made.
type Subject struct {
	UID     types.UID
	Created time.Time // the only time that plans contain
	// Namespace and Name identify the execution. Only planning needs them, for actions that store
	// something beside the execution.
	Namespace, Name string
	// Protected lists the namespaces that actions must not touch. Only planning needs it, for
	// actions that affect several namespaces; attempts take it from the plan.
	Protected []string
}

// A Client accesses a cluster as the account of an action.
type Client struct {
	Dynamic dynamic.Interface
	// Logs returns the end of a container log. It is nil if no action needs it.
	Logs func(ctx context.Context, namespace, pod, container string, lines int64) (string, error)
	// Warnings returns the warnings of the API server since the previous call. It may be nil.
	Warnings func() []string
}

// A Request is an action with validated parameters.
type Request struct {
	Action     *Action
	Parameters json.RawMessage // normalised: flat, with defaults
	Target     v1alpha1.Target // APIVersion, Kind, Namespace and Name are set

	parsed any
}

// A Result is the outcome of an attempt. A runner stores it as the termination message of its
// container: see EncodeBounded and DecodeResult.
type Result struct {
	Version   int                         `json:"v"`
	Code      Code                        `json:"code"`
	Message   string                      `json:"message,omitempty"`
	Attempt   int32                       `json:"attempt,omitempty"` // 1 is the first
	PlanHash  string                      `json:"planHash,omitempty"`
	Changed   bool                        `json:"changed"` // this attempt changed something, or may have
	Resources []v1alpha1.AffectedResource `json:"resources,omitempty"`
	Count     int32                       `json:"count,omitempty"` // resources, including omitted ones
	Warnings  []string                    `json:"warnings,omitempty"`
	Log       string                      `json:"log,omitempty"` // end of the log
	Truncated bool                        `json:"truncated,omitempty"`
	Started   time.Time                   `json:"started"`
	Ended     time.Time                   `json:"ended"`
	// DryRun is the result of a dry run, and nil for an execution.
	DryRun *v1alpha1.DryRunResults `json:"dryRun,omitempty"`
}

// Code states how an attempt ended. It is the exit code of a runner.
type Code int

// The codes. Attempts of idempotent actions are retried if Retry reports true.
const (
	CodeOK        Code = 0
	CodeGuard     Code = 10 // another object or state than planned
	CodeForbidden Code = 11
	CodeInvalid   Code = 12
	CodeDenied    Code = 13 // admission refused it: a webhook, a policy or a quota
	CodeTransient Code = 20 // Retry
	CodePartial   Code = 30 // partly done, the rest is impossible
	CodeDeadline  Code = 40
	CodeCancelled Code = 50
)

// Retry reports whether another attempt may succeed.
func (c Code) Retry() bool { return c == CodeTransient }

// A Run is one attempt to execute a plan.
type Run struct {
	Subject Subject
	Attempt int32
	// Deadline limits the attempt. The deadline of the context is only a safeguard.
	Deadline time.Time
	// Output receives one line per change, in the style of kubectl. Nil discards them.
	Output io.Writer

	dry bool // send requests with dryRun=All only
}

// A kind implements the planning and execution of an action.
type kind interface {
	// parseParameters parses the parameters and returns their problems.
	parseParameters(q parseInput) (parsed any, normal json.RawMessage, t v1alpha1.Target, problems []string)
	// targetOptional reports whether the target may be missing.
	targetOptional() bool
	// draftPlan drafts a plan from the live object, which is nil for an action without a target.
	draftPlan(ctx context.Context, c Client, s Subject, parsed any, live *unstructured.Unstructured) (*draft, error)
	// runPlan executes a plan. Most kinds send its steps.
	runPlan(ctx context.Context, c Client, p *v1alpha1.Plan, parsed any, r Run) Result
	// relevantValues returns the values of a live object on which the action depends: those in the
	// "before" of a plan and in the expected values of a rollback.
	relevantValues(parsed any, live *unstructured.Unstructured) map[string]any
}

// A draft holds the parts of a plan that are specific to an action.
type draft struct {
	steps    []v1alpha1.PlanStep
	before   map[string]any // fields of the live object before the action
	after    map[string]any // the same fields after the action
	diff     string         // empty means derived from before and after
	impact   v1alpha1.EstimatedImpact
	rollback *v1alpha1.RollbackInformation // nil means none
}
