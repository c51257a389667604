package execution

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// ErrNoPolicies means that no decision is possible because no policies are loaded. It is temporary,
// unlike an answer that cannot be used.
var ErrNoPolicies = errors.New("no policies are loaded")

// ErrMalformed means that a condition can never pass for any input: its module is not valid Rego,
// or lacks the required rule.
var ErrMalformed = errors.New("the condition does not compile")

// ErrKilled means that the evaluation of a condition was killed because it used too much CPU time
// or memory. A retry would have the same result.
var ErrKilled = errors.New("the evaluation was killed")

// RetryError is the reason why a condition was not evaluated yet. It is no statement about the
// condition.
type RetryError struct {
	After time.Duration // delay before the next attempt
	Err   error
}

// Error returns the message of Err.
func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RetryError) Unwrap() error { return e.Err }

// Policy decides whether an execution is allowed.
type Policy interface {
	// Decide decides about an execution. An error means that no decision was made, so the execution
	// is not allowed. The error wraps ErrNoPolicies if no policies are loaded.
	Decide(ctx context.Context, in *Input) (Decision, error)
}

// Conditions evaluates preconditions and postconditions. Conditions of one requester do not delay
// those of another.
type Conditions interface {
	// ReservePlace reserves a place for a requester, in which all conditions of one check are evaluated.
	// If none is free, the error wraps a *RetryError.
	ReservePlace(requester string) (Place, error)
}

// Place evaluates conditions of one requester, one after another. Its errors wrap ErrMalformed,
// ErrKilled or a *RetryError where these apply.
type Place interface {
	// CheckModule returns why a module can never pass.
	CheckModule(ctx context.Context, module string) error
	// EvaluateModule evaluates the rule allow of a Rego module for an input, and returns the value of its
	// rule message. With an error, such as an undefined rule, the condition never passes. The error
	// wraps ErrMalformed if it would be the same for any input.
	EvaluateModule(ctx context.Context, module string, input any, now time.Time) (passed bool, message string, err error)
	// ReleasePlace releases the place. It is called once.
	ReleasePlace()
}

// Decision is the answer of a policy.
type Decision struct {
	Allow           bool
	Violations      []string
	Warnings        []string
	RequireDryRun   bool
	RequireApproval bool
	Approvals       Approvals

	PolicyName string
	PolicyHash string
	Mode       string // enforce, warn or audit; for warn and audit, Allow is always true
}

// Approvals are the required approvals. The zero value requires one approval by any user who may
// approve.
type Approvals struct {
	Count                  int32
	Groups                 []string
	RequesterCannotApprove bool // excludes the requester
}

// InputVersion is the version of Input that policies see.
const InputVersion = "fleetloop.io/policy/v1"

// Input is the input of a policy or a condition. Quantities are integers: CPU in millicores, memory
// and storage in bytes, times in seconds.
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
	Plan           *InputPlan          `json:"plan,omitempty"` // set in the second evaluation
}

// InputRequest is the request.
type InputRequest struct {
	Name        string          `json:"name"`
	Namespace   string          `json:"namespace"`
	UID         string          `json:"uid"`
	Action      string          `json:"action"`
	Parameters  json.RawMessage `json:"parameters"`
	RequestedBy InputUser       `json:"requestedBy"`
	// RequestedByAgent is the assistant that made the request for the user. Empty means the user.
	RequestedByAgent string            `json:"requestedByAgent"`
	Environment      string            `json:"environment"`
	Labels           map[string]string `json:"labels"`
	Annotations      map[string]string `json:"annotations"`
	CorrelationID    string            `json:"correlationID"`
	DryRunMode       string            `json:"dryRunMode"`
	Rollback         bool              `json:"rollback"`

	// RequestedEnvironment is the environment that the request names. Empty means none. Unlike
	// Environment, it does not fall back to the environment of the namespace.
	RequestedEnvironment string `json:"requestedEnvironment"`
}

// InputUser is the requester.
type InputUser struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups"`
}

// InputAction is the action as defined in the catalogue.
type InputAction struct {
	Name                string   `json:"name"`
	Risk                string   `json:"risk"`
	Idempotent          bool     `json:"idempotent"`
	Reversible          bool     `json:"reversible"`
	ReadOnly            bool     `json:"readOnly"`
	Scope               string   `json:"scope"`               // Namespaced or Cluster
	RequiredPermissions []string `json:"requiredPermissions"` // such as "patch apps/deployments/scale"
}

// InputTarget is the target object.
type InputTarget struct {
	APIVersion  string            `json:"apiVersion"`
	Kind        string            `json:"kind"`
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Object      map[string]any    `json:"object"` // spec and status, truncated; never of a Secret
	Protected   bool              `json:"protected"`
	ManagedBy   InputManagedBy    `json:"managedBy"`
	OwnerChain  []string          `json:"ownerChain"` // such as "ReplicaSet/web-7d9", nearest first
	Scales      InputScales       `json:"scales"`
}

// InputScales is the object that a HorizontalPodAutoscaler scales. It is empty if the target has
// another kind, or if that object does not exist.
type InputScales struct {
	Kind   string            `json:"kind"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

// InputManagedBy lists other managers of the object.
type InputManagedBy struct {
	GitOps   string `json:"gitops"`   // argocd, flux, helm, or empty
	HPA      string `json:"hpa"`      // the HorizontalPodAutoscaler that scales it, or empty
	Operator string `json:"operator"` // such as "Prometheus/main", the controller that owns it, or empty
}

// InputNamespace is the namespace of the target.
type InputNamespace struct {
	Name        string            `json:"name"`
	Environment string            `json:"environment"` // from the configured label, or empty
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

// InputInFlight counts the running executions without this one.
type InputInFlight struct {
	Total       int            `json:"total"`
	ByAction    map[string]int `json:"byAction"`
	ByNamespace map[string]int `json:"byNamespace"`
	SameTarget  []string       `json:"sameTarget"` // names of executions
}

// InputHistory is the recent history of the same action on the same target.
type InputHistory struct {
	SameActionTarget InputPast `json:"sameActionTarget"`
}

// InputPast summarizes the last hour.
type InputPast struct {
	Count1h        int    `json:"count1h"`
	Failures1h     int    `json:"failures1h"`
	LastOutcome    string `json:"lastOutcome"`
	LastFinishedAt int64  `json:"lastFinishedAt"` // Unix seconds, 0 for never
}

// InputServiceAccount is the account of the action.
type InputServiceAccount struct {
	Name          string `json:"name"`
	PermissionsOK bool   `json:"permissionsOk"`
}

// InputPlan is the plan.
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

// Change is a change of an execution for recorders.
type Change struct {
	Action    ChangeAction
	Execution string // namespace/name
	UID       string
	Does      string // the action of the catalogue
	Target    v1alpha1.PlanTarget
	By        string // requester or approver; empty means the controller
	Agent     string // assistant that made the request for the requester; empty means none
	Reason    string
	Message   string
	At        time.Time
	DryRun    bool
}

// ChangeAction is the kind of a change.
type ChangeAction string

// Kinds of changes.
const (
	ChangeStarted    ChangeAction = "execution-started"
	ChangeSucceeded  ChangeAction = "execution-succeeded"
	ChangeFailed     ChangeAction = "execution-failed"
	ChangeApproved   ChangeAction = "execution-approved"
	ChangeRejected   ChangeAction = "execution-rejected"
	ChangeRolledBack ChangeAction = "execution-rolled-back"
)

// Recorder receives changes. Record never blocks.
type Recorder interface {
	Record(ctx context.Context, c Change)
}
