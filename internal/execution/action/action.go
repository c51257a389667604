// Package action is the catalogue: every action that an execution can ask for,
// with its parameters, the rights it needs, how it is planned and done, and the
// way back.
//
// An action is planned first, from the live object and without a change: the
// plan says which requests will be sent, word for word. DryRun sends them with
// dryRun=All, Execute sends them for good. Both are done as the action's own
// service account, wherever they run.
//
// Execute holds on to the object that the plan was made for: another UID, or
// other values where the plan has its "before", and nothing is sent. What was
// sent by an earlier attempt of the same execution is recognised and not sent
// twice.
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

// Risk is how much an action can break.
type Risk string

// The risks.
const (
	RiskLow      Risk = "low"
	RiskMedium   Risk = "medium"
	RiskHigh     Risk = "high"
	RiskCritical Risk = "critical"
)

// Scope is where the objects are that an action acts on.
type Scope string

// The scopes. They say which binding the action's account needs.
const (
	Namespaced Scope = "Namespaced"
	Cluster    Scope = "Cluster"
)

// An Action is one entry of the catalogue.
type Action struct {
	Name    string // such as scale_deployment
	Summary string // such as "Set how many replicas a Deployment has"
	Kubectl string // the kubectl command that does the same, for readers
	Aliases []string

	Kinds       []string // of the targets, such as Deployment
	Scope       Scope
	Permissions []Permission // all that the account needs, and nothing more

	Timeout    time.Duration // when the request names none
	MaxTimeout time.Duration // that a request may name
	Retries    int32         // when the request names none
	Risk       Risk
	Idempotent bool   // whether it can be tried again
	Reversible bool   // whether there is a way back
	ReadOnly   bool   // whether it changes nothing; there is no dry run then
	NoJob      bool   // whether there is nothing to run, as for notify_only
	Rollback   string // the action that is the way back, for readers

	account string
	schema  []Parameter
	kind    kind
}

// A Permission is one right on the target's API, in the target's namespace
// unless Scope says otherwise.
type Permission struct {
	Group, Resource, Subresource string
	Verbs                        []string
	// ClusterScoped is for rights outside of namespaces, as on nodes, and on
	// objects of all namespaces, as for the Pods of a node.
	ClusterScoped bool
	// Executor is for rights in the namespace of the executions, as on the
	// Secrets that a value comes from, whatever namespace the target is in.
	Executor bool
	// Why is what the action needs it for.
	Why string
}

// A Parameter is one parameter of an action.
type Parameter struct {
	Name     string
	Type     string // string, integer, boolean, object, array, quantity, duration
	Required bool
	Default  string // as JSON; empty is none
	Doc      string
	Enum     []string
	Minimum  *int64
	Maximum  *int64
	Format   string // dns-label, dns-subdomain, label-key, image, …; empty is any
}

// ServiceAccount is the name of the account that the action runs as.
func (a *Action) ServiceAccount() string {
	if a.account != "" {
		return a.account
	}
	return "kubernaut-action-" + strings.ReplaceAll(a.Name, "_", "-")
}

// Parameters are those of the action, in the order in which they are documented.
func (a *Action) Parameters() []Parameter { return a.schema }

// A Subject is the execution that a plan is made for.
type Subject struct {
	UID     types.UID
	Created time.Time // what a plan has of the time is this
	// Namespace and Name are where the execution is. Plans that keep something
	// beside it need them; attempts do not.
	Namespace, Name string
	// Protected are the namespaces that no action touches. Plans that reach into
	// several namespaces need them; attempts take them from the plan.
	Protected []string
}

// A Client reaches a cluster as the account of an action.
type Client struct {
	Dynamic dynamic.Interface
	// Logs gives the end of a container's log; nil where no action needs it.
	Logs func(ctx context.Context, namespace, pod, container string, lines int64) (string, error)
	// Warnings gives the warnings that the API server has sent since the last
	// call; nil is none.
	Warnings func() []string
}

// A Request is an action with parameters that are known to be good.
type Request struct {
	Action     *Action
	Parameters json.RawMessage // as they were understood: flat, with defaults
	Target     v1alpha1.Target // APIVersion, Kind, Namespace and Name are set

	parsed any
}

// A Result is what an action did. It is what a runner leaves behind as the
// termination message of its container: see Encode and DecodeResult.
type Result struct {
	Version   int                         `json:"v"`
	Code      Code                        `json:"code"`
	Message   string                      `json:"message,omitempty"`
	Attempt   int32                       `json:"attempt,omitempty"` // 1 is the first
	PlanHash  string                      `json:"planHash,omitempty"`
	Changed   bool                        `json:"changed"` // whether this attempt changed anything, or may have
	Resources []v1alpha1.AffectedResource `json:"resources,omitempty"`
	Count     int32                       `json:"count,omitempty"` // of resources, those left out included
	Warnings  []string                    `json:"warnings,omitempty"`
	Log       string                      `json:"log,omitempty"` // its end
	Truncated bool                        `json:"truncated,omitempty"`
	Started   time.Time                   `json:"started"`
	Ended     time.Time                   `json:"ended"`
	// DryRun is what a dry run found; nil of an execution.
	DryRun *v1alpha1.DryRunResults `json:"dryRun,omitempty"`
}

// Code is how an action ended: the exit code of a runner.
type Code int

// The codes. Those that say Retry may be tried again if the action is idempotent.
const (
	CodeOK        Code = 0
	CodeGuard     Code = 10 // the object is not, or not in the state, that was planned for
	CodeForbidden Code = 11
	CodeInvalid   Code = 12
	CodeDenied    Code = 13 // admission refused it: a webhook, a policy or a quota
	CodeTransient Code = 20 // Retry
	CodePartial   Code = 30 // some of it was done, and the rest cannot be
	CodeDeadline  Code = 40
	CodeCancelled Code = 50
)

// Retry says whether another attempt may do better.
func (c Code) Retry() bool { return c == CodeTransient }

// A Run is one attempt at a plan.
type Run struct {
	Subject Subject
	Attempt int32
	// Deadline bounds the attempt; the context's is hit only by accident.
	Deadline time.Time
	// Output hears what is done, line by line, as kubectl would say it. Nil is nobody.
	Output io.Writer

	dry bool // send nothing for good
}

// A kind is how an action is planned and done.
type kind interface {
	// parseParameters reads parameters, and says what is wrong with them.
	parseParameters(q parseInput) (parsed any, normal json.RawMessage, t v1alpha1.Target, problems []string)
	// targetOptional says whether the target need not exist.
	targetOptional() bool
	// draftPlan makes a plan from the live object, nil where the action has none.
	draftPlan(ctx context.Context, c Client, s Subject, parsed any, live *unstructured.Unstructured) (*draft, error)
	// runPlan does what a plan says. Most send the steps.
	runPlan(ctx context.Context, c Client, p *v1alpha1.Plan, parsed any, r Run) Result
	// dependentFields are the values of a live object that the action depends on: those
	// in a plan's "before", and in what a way back expects.
	dependentFields(parsed any, live *unstructured.Unstructured) map[string]any
}

// A draft is a plan without what all plans have.
type draft struct {
	steps    []v1alpha1.PlanStep
	before   map[string]any // fields of the live object
	after    map[string]any // the same when it is done
	diff     string         // empty means one made from before and after
	impact   v1alpha1.EstimatedImpact
	rollback *v1alpha1.RollbackInformation // nil is none
}
