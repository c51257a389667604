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
	// Current step of the execution: validating (the controller runs the checks),
	// validated (the checks passed, the action waits to start), waiting_approval,
	// executing (the action runs), rollback_ready (the action succeeded and can be rolled
	// back), completed or failed. Empty for a new execution.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Why the execution failed, as one of a fixed set of values, for example
	// approval_timeout. Set only in phase failed.
	// +optional
	Reason Reason `json:"reason,omitempty"`

	// Detailed reason why the execution failed or waits, for example policy_denied or
	// target_busy. Equals reason if no further detail is known.
	// +optional
	ReasonDetail Detail `json:"reasonDetail,omitempty"`

	// Human-readable description of the state: what happened, on which object, and
	// what to do.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`

	// Result of the execution: Succeeded, PartiallySucceeded (an optional condition
	// failed) or Failed. Empty until the execution ends.
	// +optional
	Outcome Outcome `json:"outcome,omitempty"`

	// Object that the action changes, as kind/namespace/name.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Target string `json:"target,omitempty"`

	// Proof that the ValidatingAdmissionPolicies of the controller verified the requester
	// and the parameters. Unset if they did not.
	// +optional
	// +structType=atomic
	VerifiedRequest *VerifiedRequest `json:"verifiedRequest,omitempty"`

	// Time at which the controller finished the checks before the action.
	// +optional
	ValidationTime *metav1.Time `json:"validationTime,omitempty"`

	// Results of the checks before and after the action.
	// +optional
	// +structType=atomic
	ValidationResults *ValidationResults `json:"validationResults,omitempty"`

	// Exact requests that the action will send to the API server. The controller creates
	// the plan during validation; approvers approve the hash of the plan.
	// +optional
	// +structType=atomic
	Plan *Plan `json:"plan,omitempty"`

	// Progress of the approval of the plan.
	// +optional
	// +structType=atomic
	Approval *ApprovalStatus `json:"approval,omitempty"`

	// Name of the Job that runs the action. Empty if the action runs in the controller.
	// +optional
	JobName string `json:"jobName,omitempty"`

	// Results of the action. Set when the action ends.
	// +optional
	// +structType=atomic
	ExecutionResults *ExecutionResults `json:"executionResults,omitempty"`

	// Whether and how the change of this execution can be reverted. Set after the action
	// succeeded.
	// +optional
	// +structType=atomic
	RollbackInformation *RollbackInformation `json:"rollbackInformation,omitempty"`

	// Phases that the execution entered and the start time of each, oldest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PhaseTransitions []PhaseTransition `json:"phaseTransitions,omitempty"`

	// Change events that at least one sink has not acknowledged yet, oldest first. A sink
	// is the HTTP endpoint that receives change events.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PendingChangeEvents []PendingChangeEvent `json:"pendingChangeEvents,omitempty"`

	// Conditions of the execution: Validated, Approved, Queued, Executed,
	// PostConditionsMet, RollbackAvailable, AuditRecorded and Succeeded. Succeeded
	// summarizes the result.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Value of metadata.generation of the spec that the controller last processed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// VerifiedRequest is a request that the admission policies verified.
type VerifiedRequest struct {
	// ID of the period in which the execution was created. A period is a time in which the
	// admission policies are in force without interruption. When they come into force
	// again, the controller starts a new period with a new ID.
	AdmissionPolicyPeriod string `json:"admissionPolicyPeriod"`

	// SHA-256 of the parameters in the verified request.
	// +optional
	ParametersHash string `json:"parametersHash,omitempty"`
}

// MaxPendingChangeEvents is the maximum number of change events that an execution stores for its sinks.
const MaxPendingChangeEvents = 16

// PendingChangeEvent is a change event that at least one sink has not acknowledged
// yet.
type PendingChangeEvent struct {
	// What happened, for example execution-started.
	// +kubebuilder:validation:MaxLength=63
	Action string `json:"action"`

	// Time at which it happened.
	At metav1.MicroTime `json:"at"`

	// User who requested, approved or rejected the execution. Unset if the controller
	// acted.
	// +optional
	By string `json:"by,omitempty"`

	// Value of status.reasonDetail at the time of the event.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Text of the event.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`

	// True if the event is about a dry run, which changes nothing.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// Names of the sinks that have not acknowledged the event.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Sinks []string `json:"sinks"`
}

// PhaseTransition is the start of a phase.
type PhaseTransition struct {
	// Phase that the execution entered.
	Phase Phase `json:"phase"`
	// Time at which the execution entered the phase.
	At metav1.MicroTime `json:"at"`
}

// ValidationResults are the results of the checks. A check that did not run is false.
type ValidationResults struct {
	// True if the parameters are valid for the action.
	ParameterValidation bool `json:"parameterValidation"`
	// True if the ServiceAccount of the action has the permissions that the action needs.
	RBACValidation bool `json:"rbacValidation"`
	// True if the target object exists.
	ResourceExists bool `json:"resourceExists"`

	// Decision of the safety policies, the Rego rules that allow or deny actions.
	// +optional
	PolicyValidation *PolicyValidation `json:"policyValidation,omitempty"`

	// Result of the dry run, in which the API server checks the requests of the plan
	// without persisting them.
	// +optional
	DryRunResults *DryRunResults `json:"dryRunResults,omitempty"`

	// Time of the last check.
	// +optional
	ValidationTime *metav1.Time `json:"validationTime,omitempty"`

	// Results of the conditions in spec.preConditions.
	// +listType=atomic
	// +optional
	PreConditionResults []ConditionResult `json:"preConditionResults,omitempty"`

	// Results of the conditions in spec.postConditions.
	// +listType=atomic
	// +optional
	PostConditionResults []ConditionResult `json:"postConditionResults,omitempty"`
}

// PolicyValidation is the decision of the safety policies.
type PolicyValidation struct {
	// Name of the safety policy that decided.
	// +optional
	PolicyName string `json:"policyName,omitempty"`
	// True if the policies allow the execution.
	Allowed bool `json:"allowed"`
	// True if the policies require an approval.
	RequiredApproval bool `json:"requiredApproval"`
	// True if the policies require a dry run.
	RequiredDryRun bool `json:"requiredDryRun"`

	// Rules that the execution violates, one entry for each rule.
	// +listType=atomic
	// +optional
	Violations []string `json:"violations,omitempty"`

	// Warnings of the safety policies. They do not prevent the execution.
	// +listType=atomic
	// +optional
	Warnings []string `json:"warnings,omitempty"`

	// SHA-256 of the safety policies that the controller evaluated.
	// +optional
	PolicyHash string `json:"policyHash,omitempty"`

	// Time at which the controller evaluated the safety policies.
	// +optional
	EvaluatedAt *metav1.Time `json:"evaluatedAt,omitempty"`

	// Effect of a denial: enforce (the execution fails), warn (only a warning) or audit
	// (only an audit record).
	// +optional
	Mode string `json:"mode,omitempty"`
}

// DryRunResults are the results of the dry run.
type DryRunResults struct {
	// True if the controller performed a dry run.
	Performed bool `json:"performed"`
	// True if the dry run succeeded.
	Success bool `json:"success"`

	// Expected effect of the action on the cluster.
	// +optional
	EstimatedImpact *EstimatedImpact `json:"estimatedImpact,omitempty"`

	// Warnings that the API server returned in the dry run.
	// +listType=atomic
	Warnings []string `json:"warnings"`

	// Errors that the API server returned in the dry run.
	// +listType=atomic
	// +optional
	Errors []string `json:"errors,omitempty"`
}

// EstimatedImpact is the expected effect of a plan.
type EstimatedImpact struct {
	// Number of objects that the action will change.
	ResourcesAffected int32 `json:"resourcesAffected"`

	// Number of replicas before and after the action, for example "3 -> 5".
	// +optional
	ReplicasChanged string `json:"replicasChanged,omitempty"`

	// Description of the effect in words. Approvers read it before they approve the plan.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Description string `json:"description,omitempty"`
}

// ConditionResult is the result of one precondition or postcondition.
type ConditionResult struct {
	// Type of the condition, as in spec.preConditions[].type or spec.postConditions[].type.
	ConditionType string `json:"conditionType"`
	// True if the evaluation of the condition ended without an error.
	Evaluated bool `json:"evaluated"`
	// True if the condition passed. False if it failed or its evaluation had an error.
	Passed bool `json:"passed"`
	// True if a failure of this condition prevents the action (precondition) or fails the
	// execution (postcondition).
	Required bool `json:"required"`

	// Why the condition failed, or the error of its evaluation.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ErrorMessage string `json:"errorMessage,omitempty"`

	// Time of the last evaluation.
	// +optional
	EvaluationTime *metav1.Time `json:"evaluationTime,omitempty"`

	// True if the controller killed the evaluation because it exceeded its CPU or memory
	// limit. The controller does not repeat a killed evaluation.
	// +optional
	Killed bool `json:"killed,omitempty"`

	// Number of times that the controller evaluated the condition.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
}

// Plan is the exact change that the action makes. Its hash covers all fields except
// createdAt and diff, and the resourceVersion and generation of the target.
type Plan struct {
	// SHA-256 of the plan, in hexadecimal. Approvers name this hash to approve the plan.
	Hash string `json:"hash"`

	// Name of the action that the plan runs, for example scale_deployment.
	Action string `json:"action"`
	// Parameters of the action, including default values.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// Target object as the controller found it when it created the plan.
	Target PlanTarget `json:"target"`

	// Values of the target object before the action. A rollback restores these values.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Before *runtime.RawExtension `json:"before,omitempty"`

	// Requests that the action sends to the API server, in this order.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Steps []PlanStep `json:"steps"`

	// Difference between the target object before and after the action, as readable text.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	Diff string `json:"diff,omitempty"`

	// Expected effect of the plan on the cluster.
	Impact EstimatedImpact `json:"impact"`

	// Action that reverts this plan. Unset if the plan cannot be reverted.
	// +optional
	Rollback *RollbackInformation `json:"rollback,omitempty"`

	// SHA-256 of the safety policies that allowed the plan.
	// +optional
	PolicyHash string `json:"policyHash,omitempty"`

	// ID of the period in which the controller requests approval. A period is a time in
	// which the admission policies are in force without interruption. When they come into
	// force again, the controller starts a new period with a new ID. A new ID changes the hash of the plan, so earlier approvals become invalid.
	// +optional
	AdmissionPolicyPeriod string `json:"admissionPolicyPeriod,omitempty"`

	// Time at which the controller created the plan.
	CreatedAt metav1.Time `json:"createdAt"`
}

// PlanTarget is the target object as the controller found it when it created the plan.
type PlanTarget struct {
	// API group and version of the target, for example apps/v1.
	APIVersion string `json:"apiVersion"`
	// Kind of the target, for example Deployment.
	Kind string `json:"kind"`
	// Namespace of the target. Empty for cluster-scoped objects.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the target, as in metadata.name.
	Name string `json:"name"`
	// UID of the target when the controller created the plan.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Resource version of the target. The hash of the plan does not cover it.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Generation of the target. The hash of the plan does not cover it.
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
	// State of the approval: NotRequired, Pending, Approved, Rejected or Expired (not
	// enough approvals before the deadline).
	State string `json:"state"`
	// True if the safety policies or the action require an approval.
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
	// Name of the Job that ran the action. Empty if the action ran in the controller.
	// +optional
	JobName string `json:"jobName,omitempty"`
	// UID of the Job that ran the action.
	// +optional
	JobUID types.UID `json:"jobUID,omitempty"`
	// Where the action ran: Job (in a separate Job) or Inline (in the controller).
	// +optional
	Mode ExecutionMode `json:"mode,omitempty"`
	// Hash of the plan that the action executed.
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
	// Objects that the action changed. At most 50 are listed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +optional
	ResourcesAffected []AffectedResource `json:"resourcesAffected,omitempty"`
	// Number of objects that the action changed, including those that resourcesAffected
	// does not list.
	// +optional
	ResourcesAffectedCount int32 `json:"resourcesAffectedCount,omitempty"`
	// Last lines of the log of the action.
	// +optional
	PodLogs string `json:"podLogs,omitempty"`
	// True if podLogs lacks the beginning of the log.
	// +optional
	PodLogsTruncated bool `json:"podLogsTruncated,omitempty"`
	// Number of times that the controller retried the action.
	RetriesAttempted int32 `json:"retriesAttempted"`
	// Error that made the action fail.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	ErrorMessage string `json:"errorMessage,omitempty"`
}

// AffectedResource is an object that the action changed.
type AffectedResource struct {
	// Kind of the changed object, for example Deployment.
	Kind string `json:"kind"`
	// Namespace of the changed object. Empty for cluster-scoped objects.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the changed object.
	Name string `json:"name"`
	// What the action did to the object, for example scaled, restarted or patched.
	Action string `json:"action"`
	// Value before the action, for example "replicas: 3".
	// +optional
	Before string `json:"before,omitempty"`
	// Value after the action, for example "replicas: 5".
	// +optional
	After string `json:"after,omitempty"`
	// UID of the changed object.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Resource version of the object before the action.
	// +optional
	ResourceVersionBefore string `json:"resourceVersionBefore,omitempty"`
	// Resource version of the object after the action.
	// +optional
	ResourceVersionAfter string `json:"resourceVersionAfter,omitempty"`
}

// RollbackInformation says whether and how the change of an execution can be reverted.
type RollbackInformation struct {
	// True if the execution can be rolled back.
	Available bool `json:"available"`

	// Why the execution cannot be rolled back. Empty if available is true.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Name of the action that reverts the change, for example scale_deployment.
	// +optional
	RollbackAction string `json:"rollbackAction,omitempty"`
	// Parameters for the action in rollbackAction.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	RollbackParameters *runtime.RawExtension `json:"rollbackParameters,omitempty"`
	// Expected duration of the rollback, for example 10s.
	// +optional
	EstimatedRollbackDuration string `json:"estimatedRollbackDuration,omitempty"`

	// Values that the target object had directly after the action. If the object has other
	// values when the rollback starts, the rollback fails, so that it does not overwrite a
	// later change.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	ExpectedCurrentValues *runtime.RawExtension `json:"expectedCurrentValues,omitempty"`
}
