package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Phase is how far an execution is. The empty phase is that of a new one.
//
// +kubebuilder:validation:Enum=validating;validated;waiting_approval;executing;rollback_ready;completed;failed
type Phase string

// The phases.
const (
	PhaseNew             Phase = ""
	PhaseValidating      Phase = "validating"
	PhaseValidated       Phase = "validated"
	PhaseWaitingApproval Phase = "waiting_approval"
	PhaseExecuting       Phase = "executing"
	PhaseRollbackReady   Phase = "rollback_ready"
	PhaseCompleted       Phase = "completed"
	PhaseFailed          Phase = "failed"
)

// Reason is why an execution failed, in the words of the specification.
//
// +kubebuilder:validation:Enum=validation_error;dry_run_failed;approval_timeout;approval_rejected;plan_stale;execution_failed;execution_timeout;postcondition_failed;cancelled
type Reason string

// The reasons.
const (
	ReasonValidationError     Reason = "validation_error"
	ReasonDryRunFailed        Reason = "dry_run_failed"
	ReasonApprovalTimeout     Reason = "approval_timeout"
	ReasonApprovalRejected    Reason = "approval_rejected"
	ReasonPlanStale           Reason = "plan_stale"
	ReasonExecutionFailed     Reason = "execution_failed"
	ReasonExecutionTimeout    Reason = "execution_timeout"
	ReasonPostConditionFailed Reason = "postcondition_failed"
	ReasonCancelled           Reason = "cancelled"
)

// Detail is why an execution failed or waits, more finely than Reason. One that
// fails for a reason that needs no detail has the reason's own word.
type Detail string

// The details.
const (
	DetailUnknownAction       Detail = "unknown_action"
	DetailInvalidParameters   Detail = "invalid_parameters"
	DetailRBACDenied          Detail = "rbac_denied"
	DetailAdmissionDenied     Detail = "admission_denied"
	DetailTargetNotFound      Detail = "target_not_found"
	DetailTargetState         Detail = "target_state"
	DetailTargetProtected     Detail = "target_protected"
	DetailPolicyDenied        Detail = "policy_denied"
	DetailPolicyUnavailable   Detail = "policy_unavailable"
	DetailPreConditionFailed  Detail = "precondition_failed"
	DetailConditionKilled     Detail = "condition_killed"
	DetailTargetBusy          Detail = "target_busy"
	DetailCooldown            Detail = "cooldown"
	DetailBudgetExceeded      Detail = "budget_exceeded"
	DetailCircuitOpen         Detail = "circuit_open"
	DetailEmergencyStop       Detail = "emergency_stop"
	DetailGuardMissing        Detail = "approval_guard_missing"
	DetailRequesterUnverified Detail = "requester_unverified"
	DetailExecutorUnavailable Detail = "executor_unavailable"
	DetailResultUnknown       Detail = "result_unknown"
	DetailTargetChanged       Detail = "target_changed"
	DetailPartial             Detail = "partial"
)

// Outcome is what came of an execution. Empty is not known yet.
//
// +kubebuilder:validation:Enum=Succeeded;PartiallySucceeded;Failed
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded Outcome = "Succeeded"
	OutcomePartial   Outcome = "PartiallySucceeded" // a condition that is not required does not hold
	OutcomeFailed    Outcome = "Failed"
)

// KubernetesExecutionStatus is what was checked, decided and done.
type KubernetesExecutionStatus struct {
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Why it failed.
	// +optional
	Reason Reason `json:"reason,omitempty"`

	// Why it failed or waits, more finely.
	// +optional
	ReasonDetail Detail `json:"reasonDetail,omitempty"`

	// The same for people: what happened, to what, and what to do.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`

	// +optional
	Outcome Outcome `json:"outcome,omitempty"`

	// The object that is acted on, as kind/namespace/name.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Target string `json:"target,omitempty"`

	// That the API server checked who asked, and what for. Unset is that it did not.
	// +optional
	// +structType=atomic
	VerifiedRequest *VerifiedRequest `json:"verifiedRequest,omitempty"`

	// When the checks ended.
	// +optional
	ValidationTime *metav1.Time `json:"validationTime,omitempty"`

	// +optional
	// +structType=atomic
	ValidationResults *ValidationResults `json:"validationResults,omitempty"`

	// What is going to be done: what approvers approve and what then runs.
	// +optional
	// +structType=atomic
	Plan *Plan `json:"plan,omitempty"`

	// +optional
	// +structType=atomic
	Approval *ApprovalStatus `json:"approval,omitempty"`

	// The Job that runs the action.
	// +optional
	JobName string `json:"jobName,omitempty"`

	// +optional
	// +structType=atomic
	ExecutionResults *ExecutionResults `json:"executionResults,omitempty"`

	// +optional
	// +structType=atomic
	RollbackInformation *RollbackInformation `json:"rollbackInformation,omitempty"`

	// When each phase began.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PhaseTransitions []PhaseTransition `json:"phaseTransitions,omitempty"`

	// Change events that some sink has not acknowledged yet, oldest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PendingChangeEvents []PendingChangeEvent `json:"pendingChangeEvents,omitempty"`

	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// VerifiedRequest is a request that the API server checked.
type VerifiedRequest struct {
	// The time without a gap in the admission policies in which it came.
	GuardPeriod string `json:"guardPeriod"`

	// The SHA-256 of the parameters that were asked for.
	// +optional
	ParametersHash string `json:"parametersHash,omitempty"`
}

// MaxPendingChangeEvents is how many change events an execution keeps for its sinks.
const MaxPendingChangeEvents = 16

// PendingChangeEvent is a change event that some sink has not acknowledged yet.
type PendingChangeEvent struct {
	// What was done, such as execution-started.
	// +kubebuilder:validation:MaxLength=63
	Action string `json:"action"`

	// When it was done.
	At metav1.MicroTime `json:"at"`

	// The user who requested, approved or rejected it. Unset for what the
	// controller did.
	// +optional
	By string `json:"by,omitempty"`

	// The status.reasonDetail at that time.
	// +optional
	Reason string `json:"reason,omitempty"`

	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`

	// Whether it was a dry run.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// The sinks that have not acknowledged the event.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Sinks []string `json:"sinks"`
}

// PhaseTransition is when a phase began.
type PhaseTransition struct {
	Phase Phase            `json:"phase"`
	At    metav1.MicroTime `json:"at"`
}

// ValidationResults is what the checks gave. A check that was not reached is
// false.
type ValidationResults struct {
	ParameterValidation bool `json:"parameterValidation"`
	RBACValidation      bool `json:"rbacValidation"`
	ResourceExists      bool `json:"resourceExists"`

	// +optional
	PolicyValidation *PolicyValidation `json:"policyValidation,omitempty"`

	// +optional
	DryRunResults *DryRunResults `json:"dryRunResults,omitempty"`

	// +optional
	ValidationTime *metav1.Time `json:"validationTime,omitempty"`

	// +listType=atomic
	// +optional
	PreConditionResults []ConditionResult `json:"preConditionResults,omitempty"`

	// +listType=atomic
	// +optional
	PostConditionResults []ConditionResult `json:"postConditionResults,omitempty"`
}

// PolicyValidation is what the policy decided.
type PolicyValidation struct {
	// The policy that decided, by its own name.
	// +optional
	PolicyName       string `json:"policyName,omitempty"`
	Allowed          bool   `json:"allowed"`
	RequiredApproval bool   `json:"requiredApproval"`
	RequiredDryRun   bool   `json:"requiredDryRun"`

	// Why not, one entry for each rule that spoke.
	// +listType=atomic
	// +optional
	Violations []string `json:"violations,omitempty"`

	// What the policy has to say without denying.
	// +listType=atomic
	// +optional
	Warnings []string `json:"warnings,omitempty"`

	// The SHA-256 of the policies that decided.
	// +optional
	PolicyHash string `json:"policyHash,omitempty"`

	// +optional
	EvaluatedAt *metav1.Time `json:"evaluatedAt,omitempty"`

	// What a denial does: enforce, warn or audit.
	// +optional
	Mode string `json:"mode,omitempty"`
}

// DryRunResults is what trying it out gave.
type DryRunResults struct {
	Performed bool `json:"performed"`
	Success   bool `json:"success"`

	// +optional
	EstimatedImpact *EstimatedImpact `json:"estimatedImpact,omitempty"`

	// +listType=atomic
	Warnings []string `json:"warnings"`

	// +listType=atomic
	// +optional
	Errors []string `json:"errors,omitempty"`
}

// EstimatedImpact is how much a plan changes.
type EstimatedImpact struct {
	// How many objects change.
	ResourcesAffected int32 `json:"resourcesAffected"`

	// Such as "3 -> 5".
	// +optional
	ReplicasChanged string `json:"replicasChanged,omitempty"`

	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Description string `json:"description,omitempty"`
}

// ConditionResult is what a condition gave.
type ConditionResult struct {
	ConditionType string `json:"conditionType"`
	Evaluated     bool   `json:"evaluated"`
	Passed        bool   `json:"passed"`
	Required      bool   `json:"required"`

	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ErrorMessage string `json:"errorMessage,omitempty"`

	// +optional
	EvaluationTime *metav1.Time `json:"evaluationTime,omitempty"`

	// Whether its evaluation was killed, because it took too much CPU time or
	// memory. It is not evaluated again.
	// +optional
	Killed bool `json:"killed,omitempty"`

	// How often it was evaluated.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
}

// Plan is what is going to be done, and to what. Its hash covers all but
// CreatedAt and Diff.
type Plan struct {
	// The SHA-256 of the plan, in hexadecimal.
	Hash string `json:"hash"`

	// The action, and its parameters as they were understood.
	Action string `json:"action"`
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	Target PlanTarget `json:"target"`

	// What the action changes, as it was before: the values that the way back
	// needs.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Before *runtime.RawExtension `json:"before,omitempty"`

	// What is sent to the API server, in this order.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Steps []PlanStep `json:"steps"`

	// How the object changes, line by line.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	Diff string `json:"diff,omitempty"`

	Impact EstimatedImpact `json:"impact"`

	// The way back, unless there is none.
	// +optional
	Rollback *RollbackInformation `json:"rollback,omitempty"`

	// The SHA-256 of the policies that allowed the plan.
	// +optional
	PolicyHash string `json:"policyHash,omitempty"`

	// The time without a gap in the admission policies in which the plan is put to
	// approvers. After a gap it is another one, and with it the hash, so that what
	// was approved before does not count.
	// +optional
	GuardPeriod string `json:"guardPeriod,omitempty"`

	CreatedAt metav1.Time `json:"createdAt"`
}

// PlanTarget is the object that a plan is for, as it was when the plan was made.
type PlanTarget struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Not part of the plan's hash: objects change all the time in what a plan
	// does not depend on.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Not part of the plan's hash either.
	// +optional
	Generation int64 `json:"generation,omitempty"`
}

// PlanStep is one request to the API server.
type PlanStep struct {
	// What it does, such as "scale Deployment shop/web from 3 to 5 replicas".
	// +kubebuilder:validation:MaxLength=512
	Description string `json:"description"`

	// get, create, update, patch, delete, evict, or wait.
	Verb string `json:"verb"`
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// The resource's plural name in URLs.
	// +optional
	Resource string `json:"resource,omitempty"`
	// +optional
	Subresource string `json:"subresource,omitempty"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
	// The object that is meant; the request is refused for another.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// The media type of a patch.
	// +optional
	PatchType string `json:"patchType,omitempty"`
	// The body of the request.
	// +kubebuilder:validation:MaxLength=16384
	// +optional
	Body string `json:"body,omitempty"`
}

// ApprovalStatus is how far the approval of a plan is.
type ApprovalStatus struct {
	// NotRequired, Pending, Approved, Rejected or Expired.
	State    string `json:"state"`
	Required bool   `json:"required"`
	// How many approvals are needed.
	// +optional
	RequiredCount int32 `json:"requiredCount,omitempty"`
	// Whether whoever asked may not approve.
	// +optional
	FourEyes bool `json:"fourEyes,omitempty"`
	// The groups of which an approver must be in one; none is anyone who may.
	// +listType=atomic
	// +optional
	Groups []string `json:"groups,omitempty"`
	// The approvals that count.
	// +listType=atomic
	// +optional
	Received []Approval `json:"received,omitempty"`
	// Whether spec.approvalReceived was set before an approval was asked for, so
	// that it does not count.
	// +optional
	ReceivedTooEarly bool `json:"receivedTooEarly,omitempty"`
	// Until when it is waited for.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// +optional
	DecidedAt *metav1.Time `json:"decidedAt,omitempty"`
}

// The states of an approval.
const (
	ApprovalNotRequired = "NotRequired"
	ApprovalPending     = "Pending"
	ApprovalApproved    = "Approved"
	ApprovalRejected    = "Rejected"
	ApprovalExpired     = "Expired"
)

// ExecutionResults is what was done.
type ExecutionResults struct {
	Success bool `json:"success"`
	// +optional
	JobName string `json:"jobName,omitempty"`
	// +optional
	JobUID types.UID `json:"jobUID,omitempty"`
	// +optional
	Mode ExecutionMode `json:"mode,omitempty"`
	// The hash of the plan that ran.
	// +optional
	PlanHash string `json:"planHash,omitempty"`
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// EndTime less StartTime, such as 15s.
	// +optional
	Duration string `json:"duration,omitempty"`
	// What was changed: 50 entries at most.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +optional
	ResourcesAffected []AffectedResource `json:"resourcesAffected,omitempty"`
	// How many were changed, those that are not listed included.
	// +optional
	ResourcesAffectedCount int32 `json:"resourcesAffectedCount,omitempty"`
	// The end of what the action printed.
	// +optional
	PodLogs string `json:"podLogs,omitempty"`
	// Whether PodLogs lacks its beginning.
	// +optional
	PodLogsTruncated bool `json:"podLogsTruncated,omitempty"`
	// How often it was tried again.
	RetriesAttempted int32 `json:"retriesAttempted"`
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	ErrorMessage string `json:"errorMessage,omitempty"`
}

// AffectedResource is an object that was changed.
type AffectedResource struct {
	Kind string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// What was done to it: scaled, restarted, patched, …
	Action string `json:"action"`
	// Such as "replicas: 3".
	// +optional
	Before string `json:"before,omitempty"`
	// Such as "replicas: 5".
	// +optional
	After string `json:"after,omitempty"`
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// +optional
	ResourceVersionBefore string `json:"resourceVersionBefore,omitempty"`
	// +optional
	ResourceVersionAfter string `json:"resourceVersionAfter,omitempty"`
}

// RollbackInformation is the way back: an action with its parameters.
type RollbackInformation struct {
	Available bool `json:"available"`

	// Why not.
	// +optional
	Reason string `json:"reason,omitempty"`

	// +optional
	RollbackAction string `json:"rollbackAction,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	RollbackParameters *runtime.RawExtension `json:"rollbackParameters,omitempty"`
	// Such as 10s.
	// +optional
	EstimatedRollbackDuration string `json:"estimatedRollbackDuration,omitempty"`

	// The values that the target has when the action is done, if nobody has
	// changed it since. A way back starts from them, and a second attempt at the
	// action knows by them what the first has done.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Expected *runtime.RawExtension `json:"expected,omitempty"`
}
