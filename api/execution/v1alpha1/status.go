package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Phase is the phase of an execution. It is empty for a new one.
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

// Reason is the reason of a failure.
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

// Detail is the detailed reason of a failure or a wait. It equals the reason if there
// is no further detail.
type Detail string

// The details.
const (
	DetailUnknownAction            Detail = "unknown_action"
	DetailInvalidParameters        Detail = "invalid_parameters"
	DetailRBACDenied               Detail = "rbac_denied"
	DetailAdmissionDenied          Detail = "admission_denied"
	DetailTargetNotFound           Detail = "target_not_found"
	DetailInvalidTargetState       Detail = "invalid_target_state"
	DetailTargetProtected          Detail = "target_protected"
	DetailPolicyDenied             Detail = "policy_denied"
	DetailPolicyUnavailable        Detail = "policy_unavailable"
	DetailPreConditionFailed       Detail = "precondition_failed"
	DetailConditionKilled          Detail = "condition_killed"
	DetailTargetBusy               Detail = "target_busy"
	DetailCooldown                 Detail = "cooldown"
	DetailBudgetExceeded           Detail = "budget_exceeded"
	DetailCircuitOpen              Detail = "circuit_open"
	DetailEmergencyStop            Detail = "emergency_stop"
	DetailAdmissionPoliciesMissing Detail = "admission_policies_missing"
	DetailRequesterUnverified      Detail = "requester_unverified"
	DetailExecutorUnavailable      Detail = "executor_unavailable"
	DetailResultUnknown            Detail = "result_unknown"
	DetailTargetChanged            Detail = "target_changed"
	DetailPartiallyExecuted        Detail = "partially_executed"
)

// Outcome is the result of an execution. It is empty while the result is unknown.
//
// +kubebuilder:validation:Enum=Succeeded;PartiallySucceeded;Failed
type Outcome string

// The outcomes.
const (
	OutcomeSucceeded Outcome = "Succeeded"
	OutcomePartial   Outcome = "PartiallySucceeded" // a condition that is not required does not hold
	OutcomeFailed    Outcome = "Failed"
)

// KubernetesExecutionStatus is the observed state of an execution.
type KubernetesExecutionStatus struct {
	// Phase of the execution.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Reason of the failure.
	// +optional
	Reason Reason `json:"reason,omitempty"`

	// Detailed reason of the failure or of the wait.
	// +optional
	ReasonDetail Detail `json:"reasonDetail,omitempty"`

	// Human-readable description of the state: what happened, on which object, and
	// what to do.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`

	// Result of the execution.
	// +optional
	Outcome Outcome `json:"outcome,omitempty"`

	// Target object as kind/namespace/name.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Target string `json:"target,omitempty"`

	// Set if the admission policies verified the requester and the parameters.
	// +optional
	// +structType=atomic
	VerifiedRequest *VerifiedRequest `json:"verifiedRequest,omitempty"`

	// Time at which the checks finished.
	// +optional
	ValidationTime *metav1.Time `json:"validationTime,omitempty"`

	// Results of the checks.
	// +optional
	// +structType=atomic
	ValidationResults *ValidationResults `json:"validationResults,omitempty"`

	// The plan: the exact requests that approvers approve and the action sends.
	// +optional
	// +structType=atomic
	Plan *Plan `json:"plan,omitempty"`

	// State of the approval.
	// +optional
	// +structType=atomic
	Approval *ApprovalStatus `json:"approval,omitempty"`

	// Name of the Job that runs the action.
	// +optional
	JobName string `json:"jobName,omitempty"`

	// Results of the action.
	// +optional
	// +structType=atomic
	ExecutionResults *ExecutionResults `json:"executionResults,omitempty"`

	// How to roll back the execution.
	// +optional
	// +structType=atomic
	RollbackInformation *RollbackInformation `json:"rollbackInformation,omitempty"`

	// Start time of each phase.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PhaseTransitions []PhaseTransition `json:"phaseTransitions,omitempty"`

	// Change events that some sink has not acknowledged yet, oldest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PendingChangeEvents []PendingChangeEvent `json:"pendingChangeEvents,omitempty"`

	// Conditions of the execution. Succeeded is the summary.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Generation of the spec that the status is based on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// VerifiedRequest is a request that the admission policies verified.
type VerifiedRequest struct {
	// ID of the uninterrupted period with the admission policies in force in which the
	// execution was created.
	AdmissionPolicyPeriod string `json:"admissionPolicyPeriod"`

	// SHA-256 of the requested parameters.
	// +optional
	ParametersHash string `json:"parametersHash,omitempty"`
}

// MaxPendingChangeEvents is the maximum number of change events that an execution stores for its sinks.
const MaxPendingChangeEvents = 16

// PendingChangeEvent is a change event that some sink has not acknowledged yet.
type PendingChangeEvent struct {
	// Action of the event, for example execution-started.
	// +kubebuilder:validation:MaxLength=63
	Action string `json:"action"`

	// Time of the action.
	At metav1.MicroTime `json:"at"`

	// User who requested, approved or rejected the execution. Unset for actions of
	// the controller.
	// +optional
	By string `json:"by,omitempty"`

	// Value of status.reasonDetail at that time.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Text of the event.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`

	// True for a dry run.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// Sinks that have not acknowledged the event.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Sinks []string `json:"sinks"`
}

// PhaseTransition is the start of a phase.
type PhaseTransition struct {
	// Phase that was entered.
	Phase Phase `json:"phase"`
	// Time at which the phase was entered.
	At metav1.MicroTime `json:"at"`
}

// ValidationResults are the results of the checks. A check that did not run is false.
type ValidationResults struct {
	// True if the parameters are valid for the action.
	ParameterValidation bool `json:"parameterValidation"`
	// True if the ServiceAccount of the action has the required permissions.
	RBACValidation bool `json:"rbacValidation"`
	// True if the target exists.
	ResourceExists bool `json:"resourceExists"`

	// Decision of the safety policies.
	// +optional
	PolicyValidation *PolicyValidation `json:"policyValidation,omitempty"`

	// Result of the dry run.
	// +optional
	DryRunResults *DryRunResults `json:"dryRunResults,omitempty"`

	// Time of the last validation.
	// +optional
	ValidationTime *metav1.Time `json:"validationTime,omitempty"`

	// Results of the preconditions.
	// +listType=atomic
	// +optional
	PreConditionResults []ConditionResult `json:"preConditionResults,omitempty"`

	// Results of the postconditions.
	// +listType=atomic
	// +optional
	PostConditionResults []ConditionResult `json:"postConditionResults,omitempty"`
}

// PolicyValidation is the decision of the policy.
type PolicyValidation struct {
	// Name of the policy.
	// +optional
	PolicyName string `json:"policyName,omitempty"`
	// True if the policies allow the execution.
	Allowed bool `json:"allowed"`
	// True if the policies require an approval.
	RequiredApproval bool `json:"requiredApproval"`
	// True if the policies require a dry run.
	RequiredDryRun bool `json:"requiredDryRun"`

	// Violations, one entry for each violated rule.
	// +listType=atomic
	// +optional
	Violations []string `json:"violations,omitempty"`

	// Warnings of the policy.
	// +listType=atomic
	// +optional
	Warnings []string `json:"warnings,omitempty"`

	// SHA-256 of the evaluated policies.
	// +optional
	PolicyHash string `json:"policyHash,omitempty"`

	// Time of the evaluation.
	// +optional
	EvaluatedAt *metav1.Time `json:"evaluatedAt,omitempty"`

	// Effect of a denial: enforce, warn or audit.
	// +optional
	Mode string `json:"mode,omitempty"`
}

// DryRunResults are the results of the dry run.
type DryRunResults struct {
	// True if a dry run was performed.
	Performed bool `json:"performed"`
	// True if the dry run succeeded.
	Success bool `json:"success"`

	// Expected effect of the action.
	// +optional
	EstimatedImpact *EstimatedImpact `json:"estimatedImpact,omitempty"`

	// Warnings of the API server.
	// +listType=atomic
	Warnings []string `json:"warnings"`

	// Errors of the dry run.
	// +listType=atomic
	// +optional
	Errors []string `json:"errors,omitempty"`
}

// EstimatedImpact is the expected effect of a plan.
type EstimatedImpact struct {
	// Number of objects that change.
	ResourcesAffected int32 `json:"resourcesAffected"`

	// Change of the number of replicas, for example "3 -> 5".
	// +optional
	ReplicasChanged string `json:"replicasChanged,omitempty"`

	// Description of the effect.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Description string `json:"description,omitempty"`
}

// ConditionResult is the result of a condition.
type ConditionResult struct {
	// Type of the condition, as in the spec.
	ConditionType string `json:"conditionType"`
	// True if the condition was evaluated without an error.
	Evaluated bool `json:"evaluated"`
	// True if the condition is met. False also after an error.
	Passed bool `json:"passed"`
	// True if a failure of the condition prevents or fails the execution.
	Required bool `json:"required"`

	// Error of the evaluation, or the reason why the condition is not met.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ErrorMessage string `json:"errorMessage,omitempty"`

	// Time of the evaluation.
	// +optional
	EvaluationTime *metav1.Time `json:"evaluationTime,omitempty"`

	// True if the evaluation was killed because it exceeded its CPU or memory limit.
	// A killed evaluation is not repeated.
	// +optional
	Killed bool `json:"killed,omitempty"`

	// Number of evaluations.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
}

// Plan is the exact change that the action makes. Its hash covers everything except
// createdAt and diff.
type Plan struct {
	// SHA-256 of the plan, in hexadecimal.
	Hash string `json:"hash"`

	// The action.
	Action string `json:"action"`
	// Parameters of the action, with defaults.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// Target object at the time of planning.
	Target PlanTarget `json:"target"`

	// Values before the action, as needed for the rollback.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Before *runtime.RawExtension `json:"before,omitempty"`

	// Requests that the action sends to the API server, in this order.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Steps []PlanStep `json:"steps"`

	// Diff of the target object.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	Diff string `json:"diff,omitempty"`

	// Expected effect of the plan.
	Impact EstimatedImpact `json:"impact"`

	// The rollback of this plan, if possible.
	// +optional
	Rollback *RollbackInformation `json:"rollback,omitempty"`

	// SHA-256 of the policies that allowed the plan.
	// +optional
	PolicyHash string `json:"policyHash,omitempty"`

	// ID of the uninterrupted period with the admission policies in force in which
	// approval is requested. After an interruption the ID and the hash of the plan
	// change, so that earlier approvals are no longer valid.
	// +optional
	AdmissionPolicyPeriod string `json:"admissionPolicyPeriod,omitempty"`

	// Time at which the plan was created.
	CreatedAt metav1.Time `json:"createdAt"`
}

// PlanTarget is the target object at the time of planning.
type PlanTarget struct {
	// API group and version of the target.
	APIVersion string `json:"apiVersion"`
	// Kind of the target, for example Deployment.
	Kind string `json:"kind"`
	// Namespace of the target.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the target.
	Name string `json:"name"`
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Not part of the plan's hash.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Not part of the plan's hash.
	// +optional
	Generation int64 `json:"generation,omitempty"`
}

// PlanStep is one request that the action sends to the API server. A step that evicts
// the Pods of a Node stands for one request for each Pod.
type PlanStep struct {
	// What the request does, in one sentence. Example: "scale Deployment shop/web from
	// 3 to 5 replicas".
	// +kubebuilder:validation:MaxLength=512
	Description string `json:"description"`

	// What the request does to the object: create, patch, delete or evict. patch also
	// stands for server-side apply. evict creates the subresource eviction of a Pod.
	Verb string `json:"verb"`
	// API group and version of the resource, as group/version. Example: apps/v1. The
	// core group has the version alone: v1.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Name of the resource as in the URL of the API: plural, lower case, without group
	// and version. Example: deployments.
	// +optional
	Resource string `json:"resource,omitempty"`
	// Subresource of the object that the request is sent to. Example: scale. Empty if
	// the request is sent to the object itself.
	// +optional
	Subresource string `json:"subresource,omitempty"`
	// Namespace of the object. Empty for cluster-scoped objects, and for a step that
	// evicts the Pods of a Node.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object. Empty for a step that evicts the Pods of a Node.
	// +optional
	Name string `json:"name,omitempty"`
	// UID of the object when the controller made the plan. The action does not change
	// an object with another UID. Empty if the request creates the object.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Media type of the patch. Example: application/merge-patch+json. Empty for other
	// verbs.
	// +optional
	PatchType string `json:"patchType,omitempty"`
	// Body of the request, as JSON. In a step that evicts the Pods of a Node:
	// the namespaces whose Pods stay.
	// +kubebuilder:validation:MaxLength=16384
	// +optional
	Body string `json:"body,omitempty"`
}

// ApprovalStatus is the state of the approval of a plan.
type ApprovalStatus struct {
	// State: NotRequired, Pending, Approved, Rejected or Expired.
	State string `json:"state"`
	// True if an approval is required.
	Required bool `json:"required"`
	// Number of approvals that the plan needs.
	// +optional
	RequiredCount int32 `json:"requiredCount,omitempty"`
	// If true, the user in spec.requestedBy can neither approve nor reject the plan:
	// the policies require the approval of another user (four-eyes principle).
	// +optional
	RequesterCannotApprove bool `json:"requesterCannotApprove,omitempty"`
	// Each approver must be a member of one of these groups. Empty means no
	// restriction.
	// +listType=atomic
	// +optional
	Groups []string `json:"groups,omitempty"`
	// Entries of spec.approvals that count for the current plan: the entry that rejected
	// the plan if the state is Rejected, and all valid approvals otherwise.
	// +listType=atomic
	// +optional
	CountedDecisions []Approval `json:"countedDecisions,omitempty"`
	// True if a user set spec.approvalReceived before the controller requested the
	// approval. The controller then ignores spec.approvalReceived.
	// +optional
	ReceivedTooEarly bool `json:"receivedTooEarly,omitempty"`
	// Time at which the execution fails if it does not have all required approvals.
	// Unset if no approval is required.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// Time at which the state became Approved, Rejected or Expired.
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

// ExecutionResults are the results of the action.
type ExecutionResults struct {
	// True if the action succeeded.
	Success bool `json:"success"`
	// Name of the Job that ran the action.
	// +optional
	JobName string `json:"jobName,omitempty"`
	// +optional
	JobUID types.UID `json:"jobUID,omitempty"`
	// +optional
	Mode ExecutionMode `json:"mode,omitempty"`
	// Hash of the executed plan.
	// +optional
	PlanHash string `json:"planHash,omitempty"`
	// Time at which the action started.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// Time at which the action ended, after all retries.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// Duration between startTime and endTime, for example 15s.
	// +optional
	Duration string `json:"duration,omitempty"`
	// Changed objects, at most 50.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +optional
	ResourcesAffected []AffectedResource `json:"resourcesAffected,omitempty"`
	// Number of changed objects, including those that are not listed.
	// +optional
	ResourcesAffectedCount int32 `json:"resourcesAffectedCount,omitempty"`
	// Last part of the log of the action.
	// +optional
	PodLogs string `json:"podLogs,omitempty"`
	// True if the beginning of podLogs is cut off.
	// +optional
	PodLogsTruncated bool `json:"podLogsTruncated,omitempty"`
	// Number of retries.
	RetriesAttempted int32 `json:"retriesAttempted"`
	// Error of the action.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	ErrorMessage string `json:"errorMessage,omitempty"`
}

// AffectedResource is a changed object.
type AffectedResource struct {
	// Kind of the object.
	Kind string `json:"kind"`
	// Namespace of the object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	Name string `json:"name"`
	// Change: scaled, restarted, patched, …
	Action string `json:"action"`
	// Value before the action, for example "replicas: 3".
	// +optional
	Before string `json:"before,omitempty"`
	// Value after the action, for example "replicas: 5".
	// +optional
	After string `json:"after,omitempty"`
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Resource version before the action.
	// +optional
	ResourceVersionBefore string `json:"resourceVersionBefore,omitempty"`
	// Resource version after the action.
	// +optional
	ResourceVersionAfter string `json:"resourceVersionAfter,omitempty"`
}

// RollbackInformation is the action that rolls back an execution.
type RollbackInformation struct {
	// True if the execution can be rolled back.
	Available bool `json:"available"`

	// Reason if no rollback is available.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Action that performs the rollback.
	// +optional
	RollbackAction string `json:"rollbackAction,omitempty"`
	// Parameters of the rollback action.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	RollbackParameters *runtime.RawExtension `json:"rollbackParameters,omitempty"`
	// Estimated duration, for example 10s.
	// +optional
	EstimatedRollbackDuration string `json:"estimatedRollbackDuration,omitempty"`

	// Values that the target has after the action. A rollback fails if the target no
	// longer has them.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	ExpectedCurrentValues *runtime.RawExtension `json:"expectedCurrentValues,omitempty"`
}
