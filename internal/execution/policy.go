package execution

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// ErrNoPolicies is why nothing can be decided at the moment: there are no
// policies. It passes, other than an answer that cannot be used.
var ErrNoPolicies = errors.New("no policies are loaded")

// ErrMalformed is why a condition can never hold, whatever it is told: its module
// is no Rego, or lacks the rule that is asked for.
var ErrMalformed = errors.New("the condition does not compile")

// ErrKilled is why a condition gets no answer: its evaluation took too much CPU
// time or memory, and was ended. It would be the same again.
var ErrKilled = errors.New("the evaluation was killed")

// A RetryError is why a condition was not evaluated yet. It says nothing of the
// condition.
type RetryError struct {
	After time.Duration // when to try again
	Err   error
}

// Error says why.
func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *RetryError) Unwrap() error { return e.Err }

// A Policy says whether an execution may be.
type Policy interface {
	// Decide decides about an execution. An error means that there is no
	// decision, which is never a leave. It wraps ErrNoPolicies if there is nobody
	// to ask.
	Decide(ctx context.Context, in *Input) (Decision, error)
}

// Conditions evaluates pre- and postconditions. What one requester asks for does
// not delay what another does.
type Conditions interface {
	// Enter takes a place for a requester, in which all conditions of one look are
	// evaluated. Where none is free the error wraps a *RetryError.
	Enter(requester string) (Place, error)
}

// A Place is where conditions of one requester are evaluated, one after another.
// Its errors wrap ErrMalformed, ErrKilled or a *RetryError where they are that.
type Place interface {
	// Compile says why a module can never hold.
	Compile(ctx context.Context, module string) error
	// Evaluate says whether the rule allow of a module in Rego holds for an
	// input, and what its rule message says. An error, such as a rule that is
	// undefined, never counts as holding. It wraps ErrMalformed if it would be the
	// same for any input.
	Evaluate(ctx context.Context, module string, input any, now time.Time) (passed bool, message string, err error)
	// Leave lets the next one in. It is called once.
	Leave()
}

// A Decision is what a policy answers.
type Decision struct {
	Allow           bool
	Violations      []string
	Warnings        []string
	RequireDryRun   bool
	RequireApproval bool
	Approvals       Approvals

	PolicyName string
	PolicyHash string
	Mode       string // enforce, warn or audit; in the last two Allow is true whatever was violated
}

// Approvals are whose leave is needed. The zero value is one of anyone's who may.
type Approvals struct {
	Count                  int32
	Groups                 []string
	RequesterCannotApprove bool // not of whoever asked
}

// InputVersion is the version of Input that policies see.
const InputVersion = "fleetloop.io/policy/v1"

// An Input is all that a policy or a condition is told. Quantities are integers:
// CPU in millicores, memory and storage in bytes, times in seconds.
type Input struct {
	APIVersion     string              `json:"apiVersion"`
	Now            int64               `json:"now"` // Unix seconds
	Request        InputRequest        `json:"request"`
	Action         InputAction         `json:"action"`
	Target         InputTarget         `json:"target"`
	Namespace      InputNamespace      `json:"namespace"`
	Cluster        InputCluster        `json:"cluster"`
	InFlight       InputInFlight       `json:"inflight"`
	History        InputHistory        `json:"history"`
	ServiceAccount InputServiceAccount `json:"serviceAccount"`
	Plan           *InputPlan          `json:"plan,omitempty"` // there is one at the second evaluation
}

// InputRequest is what was asked for.
type InputRequest struct {
	Name          string            `json:"name"`
	Namespace     string            `json:"namespace"`
	UID           string            `json:"uid"`
	Action        string            `json:"action"`
	Parameters    json.RawMessage   `json:"parameters"`
	RequestedBy   InputUser         `json:"requestedBy"`
	Environment   string            `json:"environment"`
	Labels        map[string]string `json:"labels"`
	Annotations   map[string]string `json:"annotations"`
	CorrelationID string            `json:"correlationID"`
	DryRunMode    string            `json:"dryRunMode"`
	Rollback      bool              `json:"rollback"`

	// RequestedEnvironment is the environment that the request itself names.
	// Empty is none. Environment falls back to the namespace's, and this does not.
	RequestedEnvironment string `json:"requestedEnvironment"`
}

// InputUser is who asked.
type InputUser struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups"`
}

// InputAction is what the catalogue says of the action.
type InputAction struct {
	Name                string   `json:"name"`
	Risk                string   `json:"risk"`
	Idempotent          bool     `json:"idempotent"`
	Reversible          bool     `json:"reversible"`
	ReadOnly            bool     `json:"readOnly"`
	Scope               string   `json:"scope"`               // Namespaced or Cluster
	RequiredPermissions []string `json:"requiredPermissions"` // such as "patch apps/deployments/scale"
}

// InputTarget is the object to act on.
type InputTarget struct {
	APIVersion  string            `json:"apiVersion"`
	Kind        string            `json:"kind"`
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Object      map[string]any    `json:"object"` // its spec and status, bounded; never of a Secret
	Protected   bool              `json:"protected"`
	ManagedBy   InputManagedBy    `json:"managedBy"`
	OwnerChain  []string          `json:"ownerChain"` // such as "ReplicaSet/web-7d9", nearest first
	Scales      InputScales       `json:"scales"`
}

// InputScales is the object that the target, a HorizontalPodAutoscaler, scales.
// All is empty of another target, and where that object does not exist.
type InputScales struct {
	Kind   string            `json:"kind"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

// InputManagedBy is what else changes the object.
type InputManagedBy struct {
	GitOps   string `json:"gitops"`   // argocd, flux, helm, or empty
	HPA      string `json:"hpa"`      // the HorizontalPodAutoscaler that scales it, or empty
	Operator string `json:"operator"` // such as "Prometheus/main", the controller that owns it, or empty
}

// InputNamespace is the target's namespace.
type InputNamespace struct {
	Name        string            `json:"name"`
	Environment string            `json:"environment"` // by the label that the controller is told of, or empty
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// InputCluster is the cluster as a whole.
type InputCluster struct {
	Name               string   `json:"name"`
	TotalNodes         int      `json:"totalNodes"`
	ReadyNodes         int      `json:"readyNodes"`
	SchedulableNodes   int      `json:"schedulableNodes"`
	UnschedulableNodes []string `json:"unschedulableNodes"`
	AvailableCPU       int64    `json:"availableCPU"`    // millicores: allocatable less requested
	AvailableMemory    int64    `json:"availableMemory"` // bytes
}

// InputInFlight is what is executing at the moment, this execution left out.
type InputInFlight struct {
	Total       int            `json:"total"`
	ByAction    map[string]int `json:"byAction"`
	ByNamespace map[string]int `json:"byNamespace"`
	SameTarget  []string       `json:"sameTarget"` // names of executions
}

// InputHistory is what the same action did to the same target lately.
type InputHistory struct {
	SameActionTarget InputPast `json:"sameActionTarget"`
}

// InputPast is the last hour.
type InputPast struct {
	Count1h        int    `json:"count1h"`
	Failures1h     int    `json:"failures1h"`
	LastOutcome    string `json:"lastOutcome"`
	LastFinishedAt int64  `json:"lastFinishedAt"` // Unix seconds, 0 for never
}

// InputServiceAccount is whom the action runs as.
type InputServiceAccount struct {
	Name          string `json:"name"`
	PermissionsOK bool   `json:"permissionsOk"`
}

// InputPlan is what is going to be done.
type InputPlan struct {
	Hash            string           `json:"hash"`
	Changes         []map[string]any `json:"changes"` // verb, resource, namespace, name, description of each step
	Affected        int32            `json:"affected"`
	ReplicasChanged string           `json:"replicasChanged"`
	Diff            string           `json:"diff"`
	Before          json.RawMessage  `json:"before"`
	Reversible      bool             `json:"reversible"`
	DryRunPerformed bool             `json:"dryRunPerformed"`
	DryRunWarnings  []string         `json:"dryRunWarnings"`
}

// A Change is something that was done, for those who want to know.
type Change struct {
	Action    ChangeAction
	Execution string // namespace/name
	UID       string
	Does      string // the action of the catalogue
	Target    v1alpha1.PlanTarget
	By        string // who asked, approved or rejected; empty is the controller
	Reason    string
	Message   string
	At        time.Time
	DryRun    bool
}

// ChangeAction is what was done.
type ChangeAction string

// What is told.
const (
	ChangeStarted    ChangeAction = "execution-started"
	ChangeSucceeded  ChangeAction = "execution-succeeded"
	ChangeFailed     ChangeAction = "execution-failed"
	ChangeApproved   ChangeAction = "execution-approved"
	ChangeRejected   ChangeAction = "execution-rejected"
	ChangeRolledBack ChangeAction = "execution-rolled-back"
)

// A Recorder hears of changes. It never blocks.
type Recorder interface {
	Record(ctx context.Context, c Change)
}
