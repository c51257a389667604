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
	// Current phase. validating: the controller runs the checks. validated: the checks
	// passed. waiting_approval: users must approve the plan. executing: the action runs,
	// followed by the postconditions. rollback_ready: the action has run and can be rolled
	// back. completed or failed: the execution has ended. Empty for a new execution.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Why the execution failed, as one of a fixed set of values, for example
	// approval_timeout. Empty if it did not fail.
	// +optional
	Reason Reason `json:"reason,omitempty"`

	// Detailed reason why the execution failed or waits, for example policy_denied or
	// target_busy (another execution changes the same object). Equals reason if no further
	// detail is known. Empty while everything proceeds normally.
	// +optional
	ReasonDetail Detail `json:"reasonDetail,omitempty"`

	// Human-readable description of the current state: what happened, on which object, and
	// what to do next.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`

	// Result of the execution: Succeeded, PartiallySucceeded (the action succeeded, but a
	// postcondition with required: false failed) or Failed. Empty until the result is known.
	// +optional
	Outcome Outcome `json:"outcome,omitempty"`

	// Object that the action changes, as kind/namespace/name, or kind/name for a
	// cluster-scoped object.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Target string `json:"target,omitempty"`

	// Set if the ValidatingAdmissionPolicies of Fleetloop were in force when this
	// KubernetesExecution was created. These policies verify the user in spec.requestedBy.
	// +optional
	// +structType=atomic
	VerifiedRequest *VerifiedRequest `json:"verifiedRequest,omitempty"`

	// Time at which the controller finished the checks before the action. Unset while they
	// run.
	// +optional
	ValidationTime *metav1.Time `json:"validationTime,omitempty"`

	// Results of the checks before the action (parameters, permissions, safety policies,
	// dry run, preconditions) and after it (postconditions). Unset until the first results
	// are known.
	// +optional
	// +structType=atomic
	ValidationResults *ValidationResults `json:"validationResults,omitempty"`

	// Exact requests that the action will send to the API server. The controller creates
	// this plan in phase validating. Each approval names the hash of the plan and is valid
	// only for this plan.
	// +optional
	// +structType=atomic
	Plan *Plan `json:"plan,omitempty"`

	// Approval of status.plan: how many approvals are required, who can give them, and which
	// were given.
	// +optional
	// +structType=atomic
	Approval *ApprovalStatus `json:"approval,omitempty"`

	// Name of the Job that runs the action. Empty before the action starts, and if the
	// action runs in the controller.
	// +optional
	JobName string `json:"jobName,omitempty"`

	// Record of the run of the action: start, end, result and log. Unset until the action
	// starts. The result is added when the action ends.
	// +optional
	// +structType=atomic
	ExecutionResults *ExecutionResults `json:"executionResults,omitempty"`

	// Whether and how the change of this execution can be reverted. Set when the action has
	// succeeded, and also when it has failed but may have changed something.
	// +optional
	// +structType=atomic
	RollbackInformation *RollbackInformation `json:"rollbackInformation,omitempty"`

	// Phases that the execution entered and the start time of each, oldest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PhaseTransitions []PhaseTransition `json:"phaseTransitions,omitempty"`

	// Change events about this execution, for example execution-started, that are still
	// waiting for delivery to at least one sink, oldest first. A sink is an HTTP endpoint
	// that receives change events.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PendingChangeEvents []PendingChangeEvent `json:"pendingChangeEvents,omitempty"`

	// Conditions of the execution: Validated, Approved, Queued (the action waits to start),
	// Executed, PostConditionsMet, RollbackAvailable, AuditRecorded (the audit is complete)
	// and Succeeded (the overall result).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Value of metadata.generation when the controller last updated the status. If
	// metadata.generation is higher, the spec has changed since.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// VerifiedRequest is a request that the admission policies verified.
type VerifiedRequest struct {
	// ID of the period in which this KubernetesExecution was created. During one period, the
	// ValidatingAdmissionPolicies of Fleetloop are in force without a gap. After a gap, a
	// new period with a new ID starts.
	AdmissionPolicyPeriod string `json:"admissionPolicyPeriod"`

	// SHA-256 of spec.parameters when the controller verified the request, in hexadecimal.
	// If spec.parameters change later, the execution fails. Empty without parameters.
	// +optional
	ParametersHash string `json:"parametersHash,omitempty"`
}

// MaxPendingChangeEvents is the maximum number of change events that an execution stores for its sinks.
const MaxPendingChangeEvents = 16

// PendingChangeEvent is a change event that is waiting for delivery to at least one
// sink.
type PendingChangeEvent struct {
	// Type of the event: execution-started, execution-succeeded, execution-failed,
	// execution-approved, execution-rejected or execution-rolled-back.
	// +kubebuilder:validation:MaxLength=63
	Action string `json:"action"`

	// Time at which the event happened.
	At metav1.MicroTime `json:"at"`

	// User who requested the execution or, for an approval or rejection, the user who
	// decided. Empty for execution-failed, and if the user is unknown.
	// +optional
	By string `json:"by,omitempty"`

	// Detailed reason of a failure, as in status.reasonDetail at the time of the event.
	// Empty if nothing failed.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Human-readable description of the event, for example why the execution failed.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Message string `json:"message,omitempty"`

	// True if the event is about a dry run, which changes nothing.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// Names of the sinks that have not acknowledged the event. A sink is an HTTP endpoint
	// that receives change events.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Sinks []string `json:"sinks"`
}

// PhaseTransition is the start of a phase.
type PhaseTransition struct {
	// Phase that the execution entered, as in status.phase.
	Phase Phase `json:"phase"`
	// Time at which the execution entered the phase.
	At metav1.MicroTime `json:"at"`
}

// ValidationResults are the results of the checks. A check that did not run is false.
type ValidationResults struct {
	// True if the action exists and its parameters are valid. Also false if this check has
	// not run.
	ParameterValidation bool `json:"parameterValidation"`
	// True if the user may request the action, and the ServiceAccount of the action has the
	// necessary permissions. Also false if this check has not run.
	RBACValidation bool `json:"rbacValidation"`
	// True if the object that the action changes exists, or if the action does not need it
	// to exist. Also false if this check has not run.
	ResourceExists bool `json:"resourceExists"`

	// Decision of the safety policies, the Rego rules that allow or deny executions. Unset
	// if the controller has not evaluated them.
	// +optional
	PolicyValidation *PolicyValidation `json:"policyValidation,omitempty"`

	// Result of the dry run, in which the API server checks the requests of the action
	// without persisting anything. If no dry run took place, performed is false.
	// +optional
	DryRunResults *DryRunResults `json:"dryRunResults,omitempty"`

	// Time at which the controller finished the checks before the action. Empty while they
	// run.
	// +optional
	ValidationTime *metav1.Time `json:"validationTime,omitempty"`

	// Result of each condition in spec.preConditions: whether it passed and, if not, why.
	// Empty until the conditions are evaluated.
	// +listType=atomic
	// +optional
	PreConditionResults []ConditionResult `json:"preConditionResults,omitempty"`

	// Result of each condition in spec.postConditions: whether it passed and, if not, why.
	// Empty until the conditions are evaluated, after the action.
	// +listType=atomic
	// +optional
	PostConditionResults []ConditionResult `json:"postConditionResults,omitempty"`
}

// PolicyValidation is the decision of the safety policies.
type PolicyValidation struct {
	// Name of the safety policy that made the decision. A safety policy is a set of Rego
	// rules.
	// +optional
	PolicyName string `json:"policyName,omitempty"`
	// True if the safety policies allow the execution. Always true if mode is warn or audit.
	Allowed bool `json:"allowed"`
	// True if the safety policies require that users approve the execution before the action
	// starts.
	RequiredApproval bool `json:"requiredApproval"`
	// True if the safety policies require a dry run before the action starts.
	RequiredDryRun bool `json:"requiredDryRun"`

	// Rules of the safety policies that the execution violates, one text for each rule.
	// Empty if it violates none.
	// +listType=atomic
	// +optional
	Violations []string `json:"violations,omitempty"`

	// Warnings of the safety policies (Rego rules that allow or deny executions). They do
	// not prevent the execution.
	// +listType=atomic
	// +optional
	Warnings []string `json:"warnings,omitempty"`

	// SHA-256 of the safety policies that the controller evaluated, in hexadecimal. It
	// changes when a policy changes.
	// +optional
	PolicyHash string `json:"policyHash,omitempty"`

	// Time at which the controller evaluated the safety policies (Rego rules that allow or
	// deny executions).
	// +optional
	EvaluatedAt *metav1.Time `json:"evaluatedAt,omitempty"`

	// Effect of a denial by the safety policies. enforce: the execution fails. warn and
	// audit: the execution continues, and each violation becomes a warning.
	// +optional
	Mode string `json:"mode,omitempty"`
}

// DryRunResults are the results of the dry run.
type DryRunResults struct {
	// True if the controller performed a dry run. False if none was required, or if the
	// action does not support it.
	Performed bool `json:"performed"`
	// True if the dry run succeeded. False if it failed or did not take place.
	Success bool `json:"success"`

	// What the action is expected to change in the cluster: number of objects, number of
	// replicas, and a description.
	// +optional
	EstimatedImpact *EstimatedImpact `json:"estimatedImpact,omitempty"`

	// Warnings of the dry run, for example those that the API server returned. They do not
	// prevent the action.
	// +listType=atomic
	Warnings []string `json:"warnings"`

	// Why the dry run failed, for example the error that the API server returned. Empty if
	// it did not fail.
	// +listType=atomic
	// +optional
	Errors []string `json:"errors,omitempty"`
}

// EstimatedImpact is the expected effect of a plan.
type EstimatedImpact struct {
	// Number of objects that the action is expected to create, change or delete.
	ResourcesAffected int32 `json:"resourcesAffected"`

	// Number of replicas before and after the action, for example "3 -> 5". Empty if the
	// action does not change it.
	// +optional
	ReplicasChanged string `json:"replicasChanged,omitempty"`

	// Expected effect of the action in words. Approvers read it before they approve.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Description string `json:"description,omitempty"`
}

// ConditionResult is the result of one precondition or postcondition.
type ConditionResult struct {
	// Name of the condition, copied from its field type in spec.preConditions or
	// spec.postConditions.
	ConditionType string `json:"conditionType"`
	// True if the controller evaluated the condition. False if the evaluation failed (see
	// errorMessage) or has not started yet.
	Evaluated bool `json:"evaluated"`
	// True if the condition passed. False if it failed, or if evaluated is false.
	Passed bool `json:"passed"`
	// If true, a failure of this condition prevents the action (precondition) or fails the
	// execution (postcondition). If false, a failure is only a warning.
	Required bool `json:"required"`

	// Why the condition failed, or the error of its evaluation. Empty if it passed.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ErrorMessage string `json:"errorMessage,omitempty"`

	// Time of the evaluation that gave this result.
	// +optional
	EvaluationTime *metav1.Time `json:"evaluationTime,omitempty"`

	// True if the controller stopped the evaluation because it used too much CPU time or
	// memory. The controller does not evaluate the condition again.
	// +optional
	Killed bool `json:"killed,omitempty"`

	// Number of times that the controller evaluated the condition, including the evaluation
	// that gave this result.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
}

// Plan is the exact change that the action makes. Its hash covers all fields except
// createdAt and diff, and the resourceVersion and generation of the target.
type Plan struct {
	// SHA-256 of the plan (the API requests that the action will send), in hexadecimal.
	// Approvers copy it to the field planHash of their entry in spec.approvals.
	Hash string `json:"hash"`

	// Name of the action that the plan runs, for example scale_deployment.
	Action string `json:"action"`
	// Parameters with which the action runs, including the default values of those that are
	// not set in the spec.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// The object that the action changes, as the controller found it when it created the
	// plan.
	Target PlanTarget `json:"target"`

	// Fields that the action changes, with their values before the action. A rollback
	// restores these values.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Before *runtime.RawExtension `json:"before,omitempty"`

	// Requests that the action sends to the API server, in this order. Empty if there is
	// nothing to change.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Steps []PlanStep `json:"steps"`

	// Difference between the changed object before and after the action, as text. Empty if
	// there is nothing to change.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	Diff string `json:"diff,omitempty"`

	// Changes in the cluster that the API requests in the plan are expected to cause:
	// number of objects, number of replicas, and a description.
	Impact EstimatedImpact `json:"impact"`

	// Whether the change can be reverted (available), and with which action
	// (rollbackAction). If it cannot be reverted, reason says why.
	// +optional
	Rollback *RollbackInformation `json:"rollback,omitempty"`

	// SHA-256 of the safety policies (Rego rules that allow or deny executions) that allowed
	// the plan, in hexadecimal. If a policy changes, the hash of the plan changes as well.
	// +optional
	PolicyHash string `json:"policyHash,omitempty"`

	// ID of the current period in which the ValidatingAdmissionPolicies of Fleetloop are in
	// force without a gap. After a gap, the ID and the hash of the plan change, and earlier
	// approvals become invalid. Empty if no approval is required.
	// +optional
	AdmissionPolicyPeriod string `json:"admissionPolicyPeriod,omitempty"`

	// Creation time of this KubernetesExecution. It stays the same when the controller
	// computes the plan again.
	CreatedAt metav1.Time `json:"createdAt"`
}

// PlanTarget is the target object as the controller found it when it created the plan.
type PlanTarget struct {
	// API group and version of the object that the action changes, for example apps/v1.
	APIVersion string `json:"apiVersion"`
	// Kind of the object that the action changes, for example Deployment.
	Kind string `json:"kind"`
	// Namespace of the object that the action changes. Empty for cluster-scoped objects.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object that the action changes, as in metadata.name.
	Name string `json:"name"`
	// UID of the object that the action changes. The action does not change another object
	// with the same name. Empty if the object did not exist yet.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Value of metadata.resourceVersion of the object when the controller last computed the
	// plan. It is not part of the hash of the plan.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Value of metadata.generation of the object when the controller last computed the plan.
	// It is not part of the hash of the plan.
	// +optional
	Generation int64 `json:"generation,omitempty"`
}

// PlanStep is one request that the action sends to the API server. A step that evicts
// the Pods of a Node stands for one request for each Pod.
type PlanStep struct {
	// Effect of the request, in a few words. Example: "scale Deployment shop/web from 3 to 5
	// replicas".
	// +kubebuilder:validation:MaxLength=512
	Description string `json:"description"`

	// Type of the request: create, patch (also for server-side apply), delete, or evict
	// (create the subresource eviction of a Pod).
	Verb string `json:"verb"`
	// API group and version of the resource in the request. Example: apps/v1, or v1 for the
	// core group.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Plural name of the resource in the request, as in the URL of the API. Example:
	// deployments.
	// +optional
	Resource string `json:"resource,omitempty"`
	// Subresource in the request, for example scale. Empty if the request changes the object
	// itself.
	// +optional
	Subresource string `json:"subresource,omitempty"`
	// Namespace of the object that this step changes. Empty for a cluster-scoped object.
	// Also empty if this step represents all evictions of a node drain.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object that this step changes. Empty if this step represents all
	// evictions of a node drain.
	// +optional
	Name string `json:"name,omitempty"`
	// UID that the object of this step had when the controller created the plan. The action
	// does not change an object with the same name but another UID. Empty if this step
	// creates the object, or if it represents all evictions of a node drain.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Media type of the patch, for example application/merge-patch+json. Empty if the
	// request is not a patch.
	// +optional
	PatchType string `json:"patchType,omitempty"`
	// Body of the request, as JSON. Empty if the request needs no body. If this step
	// represents all evictions of a node drain, the body lists the protected namespaces,
	// whose Pods are not evicted.
	// +kubebuilder:validation:MaxLength=16384
	// +optional
	Body string `json:"body,omitempty"`
}

// ApprovalStatus is the state of the approval of a plan.
type ApprovalStatus struct {
	// State of the approval: NotRequired, Pending, Approved, Rejected or Expired (not
	// enough approvals before the deadline).
	State string `json:"state"`
	// True if the safety policies require that users approve status.plan before the action
	// starts.
	Required bool `json:"required"`
	// Number of users who must approve status.plan before the action starts. Unset if no
	// approval is required.
	// +optional
	RequiredCount int32 `json:"requiredCount,omitempty"`
	// If true, the user in spec.requestedBy can neither approve nor reject status.plan. A
	// safety policy requires the approval of another user (four-eyes principle).
	// +optional
	RequesterCannotApprove bool `json:"requesterCannotApprove,omitempty"`
	// Groups whose members can approve or reject status.plan. Membership in one of the
	// groups is enough. Empty means no restriction by group.
	// +listType=atomic
	// +optional
	Groups []string `json:"groups,omitempty"`
	// Valid entries of spec.approvals for the current status.plan. If the state is Rejected,
	// only the entry with the rejection. Otherwise all approvals so far.
	// +listType=atomic
	// +optional
	CountedDecisions []Approval `json:"countedDecisions,omitempty"`
	// True if spec.approvalReceived was already true when the controller requested approval
	// of the current status.plan. The controller then ignores spec.approvalReceived: approve
	// with an entry in spec.approvals.
	// +optional
	ReceivedTooEarly bool `json:"receivedTooEarly,omitempty"`
	// Time at which the execution fails unless it has all required approvals by then. Unset
	// if no approval is required.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// Time at which the state became Approved, Rejected or Expired. Unset before.
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
	// True if the action succeeded. False if it failed or has not ended yet.
	Success bool `json:"success"`
	// Name of the Job that ran the action. Empty if the action ran in the controller.
	// +optional
	JobName string `json:"jobName,omitempty"`
	// UID of the Job that ran the action. Empty if the action ran in the controller.
	// +optional
	JobUID types.UID `json:"jobUID,omitempty"`
	// Where the action ran: Job (in a separate Job) or Inline (in the controller).
	// +optional
	Mode ExecutionMode `json:"mode,omitempty"`
	// Hash of the plan (the API requests in status.plan) that the action executed, as in
	// status.plan.hash.
	// +optional
	PlanHash string `json:"planHash,omitempty"`
	// Time at which the action started.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// Time at which the action ended, after all retries. Unset while it runs.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// Time from startTime to endTime, for example 15s. Empty while the action runs.
	// +optional
	Duration string `json:"duration,omitempty"`
	// Objects that the action created, changed or deleted. At most 50 are listed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +optional
	ResourcesAffected []AffectedResource `json:"resourcesAffected,omitempty"`
	// Number of objects that the action created, changed or deleted, including those that
	// resourcesAffected does not list.
	// +optional
	ResourcesAffectedCount int32 `json:"resourcesAffectedCount,omitempty"`
	// Last lines of the log of the action, at most 2 KiB. Empty while the action runs.
	// +optional
	PodLogs string `json:"podLogs,omitempty"`
	// True if podLogs contains only the end of the log, because the log is too long.
	// +optional
	PodLogsTruncated bool `json:"podLogsTruncated,omitempty"`
	// Number of times that the controller retried the action. 0 if it was not retried.
	RetriesAttempted int32 `json:"retriesAttempted"`
	// Error that made the action fail. Empty if it did not fail.
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
	// Name of the changed object, as in metadata.name.
	Name string `json:"name"`
	// What the action did to the object, for example scaled, restarted or patched.
	Action string `json:"action"`
	// Values that the changed fields of the object had before the action, for example
	// "replicas: 3". Empty if the action created the object, or if no values were recorded.
	// +optional
	Before string `json:"before,omitempty"`
	// Values that the changed fields of the object had after the action, for example
	// "replicas: 5". Empty if the action deleted the object, or if no values were recorded.
	// +optional
	After string `json:"after,omitempty"`
	// UID of the changed object.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Value of metadata.resourceVersion of the object before the action. Empty if unknown,
	// or if the action created the object.
	// +optional
	ResourceVersionBefore string `json:"resourceVersionBefore,omitempty"`
	// Value of metadata.resourceVersion of the object after the action. Empty if unknown, or
	// if the action deleted the object.
	// +optional
	ResourceVersionAfter string `json:"resourceVersionAfter,omitempty"`
}

// RollbackInformation says whether and how the change of an execution can be reverted.
type RollbackInformation struct {
	// True if the change can be reverted by the action in rollbackAction.
	Available bool `json:"available"`

	// Why the change cannot be reverted. Empty if available is true.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Name of the action that reverts the change, for example scale_deployment. To roll
	// back, create a KubernetesExecution with this action, the rollbackParameters and
	// spec.rollbackOf. Empty if available is false.
	// +optional
	RollbackAction string `json:"rollbackAction,omitempty"`
	// Parameters for the action in rollbackAction. Unset if available is false.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	RollbackParameters *runtime.RawExtension `json:"rollbackParameters,omitempty"`
	// Expected duration of the rollback, for example 10s. Empty if available is false.
	// +optional
	EstimatedRollbackDuration string `json:"estimatedRollbackDuration,omitempty"`

	// Values of the changed fields directly after the action. If the object has other values
	// when a rollback starts, the rollback fails. This protects later changes of the object.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	ExpectedCurrentValues *runtime.RawExtension `json:"expectedCurrentValues,omitempty"`
}
