package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// KubernetesExecution requests one action on one object.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=kubernetesexecutions,singular=kubernetesexecution,shortName=kexec;ke,scope=Namespaced
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.action`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.target`
// +kubebuilder:printcolumn:name="Approval",type=string,JSONPath=`.status.approval.state`
// +kubebuilder:printcolumn:name="Outcome",type=string,JSONPath=`.status.outcome`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.reasonDetail`
// +kubebuilder:printcolumn:name="Requested By",type=string,priority=1,JSONPath=`.spec.requestedBy`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:selectablefield:JSONPath=`.spec.action`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
type KubernetesExecution struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The requested action. Immutable except for approvals, approvalReceived, cancel,
	// cancelledBy and finalize.
	// +required
	Spec KubernetesExecutionSpec `json:"spec"`

	// The observed state: checks, decisions and result. Only the controller writes it.
	// +optional
	Status KubernetesExecutionStatus `json:"status,omitempty"`
}

// KubernetesExecutionList is a list of KubernetesExecutions.
//
// +kubebuilder:object:root=true
type KubernetesExecutionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []KubernetesExecution `json:"items"`
}

// KubernetesExecutionSpec is the requested action.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf || self.action == oldSelf.action && has(self.parameters) == has(oldSelf.parameters) && (has(self.targetNamespace) ? has(oldSelf.targetNamespace) && self.targetNamespace == oldSelf.targetNamespace : !has(oldSelf.targetNamespace)) && (has(self.resourceName) ? has(oldSelf.resourceName) && self.resourceName == oldSelf.resourceName : !has(oldSelf.resourceName)) && (has(self.target) ? has(oldSelf.target) && self.target == oldSelf.target : !has(oldSelf.target)) && (has(self.targetCluster) ? has(oldSelf.targetCluster) && self.targetCluster == oldSelf.targetCluster : !has(oldSelf.targetCluster)) && (has(self.maxRetries) ? has(oldSelf.maxRetries) && self.maxRetries == oldSelf.maxRetries : !has(oldSelf.maxRetries)) && (has(self.timeout) ? has(oldSelf.timeout) && self.timeout == oldSelf.timeout : !has(oldSelf.timeout)) && (has(self.approvalTimeout) ? has(oldSelf.approvalTimeout) && self.approvalTimeout == oldSelf.approvalTimeout : !has(oldSelf.approvalTimeout)) && (has(self.ttlSecondsAfterFinished) ? has(oldSelf.ttlSecondsAfterFinished) && self.ttlSecondsAfterFinished == oldSelf.ttlSecondsAfterFinished : !has(oldSelf.ttlSecondsAfterFinished)) && (has(self.preConditions) ? has(oldSelf.preConditions) && self.preConditions == oldSelf.preConditions : !has(oldSelf.preConditions)) && (has(self.postConditions) ? has(oldSelf.postConditions) && self.postConditions == oldSelf.postConditions : !has(oldSelf.postConditions)) && (has(self.remediationRequestRef) ? has(oldSelf.remediationRequestRef) && self.remediationRequestRef == oldSelf.remediationRequestRef : !has(oldSelf.remediationRequestRef)) && (has(self.workflowExecutionRef) ? has(oldSelf.workflowExecutionRef) && self.workflowExecutionRef == oldSelf.workflowExecutionRef : !has(oldSelf.workflowExecutionRef)) && (has(self.stepNumber) ? has(oldSelf.stepNumber) && self.stepNumber == oldSelf.stepNumber : !has(oldSelf.stepNumber)) && (has(self.rollbackOf) ? has(oldSelf.rollbackOf) && self.rollbackOf == oldSelf.rollbackOf : !has(oldSelf.rollbackOf)) && (has(self.environment) ? has(oldSelf.environment) && self.environment == oldSelf.environment : !has(oldSelf.environment)) && (has(self.requestedBy) ? has(oldSelf.requestedBy) && self.requestedBy == oldSelf.requestedBy : !has(oldSelf.requestedBy)) && (has(self.requesterGroups) ? has(oldSelf.requesterGroups) && self.requesterGroups == oldSelf.requesterGroups : !has(oldSelf.requesterGroups)) && (has(self.reason) ? has(oldSelf.reason) && self.reason == oldSelf.reason : !has(oldSelf.reason)) && (has(self.correlationID) ? has(oldSelf.correlationID) && self.correlationID == oldSelf.correlationID : !has(oldSelf.correlationID)) && (has(self.dryRunMode) ? has(oldSelf.dryRunMode) && self.dryRunMode == oldSelf.dryRunMode : !has(oldSelf.dryRunMode)) && (has(self.executionMode) ? has(oldSelf.executionMode) && self.executionMode == oldSelf.executionMode : !has(oldSelf.executionMode))",message="spec is immutable except for approvals, approvalReceived, cancel, cancelledBy and finalize: create another execution"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.approvals) || has(self.approvals) && oldSelf.approvals.all(a, self.approvals.exists(b, a == b || a.approver == b.approver && a.planHash != b.planHash))",message="approvals can only be added, or replaced by the same approver for another plan"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.approvalReceived) || !oldSelf.approvalReceived || has(self.approvalReceived) && self.approvalReceived",message="approvalReceived cannot be reset to false"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cancel) || !oldSelf.cancel || has(self.cancel) && self.cancel && (has(self.cancelledBy) ? has(oldSelf.cancelledBy) && self.cancelledBy == oldSelf.cancelledBy : !has(oldSelf.cancelledBy))",message="cancel cannot be reset to false, and cancelledBy is immutable"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.finalize) || !oldSelf.finalize || has(self.finalize) && self.finalize",message="finalize cannot be reset to false"
type KubernetesExecutionSpec struct {
	// The rules above are evaluated at each write of the status, too, and cost by the
	// fields that they look up. So the one about all fields asks first whether any has
	// changed, and a rule about the values of one field is at that field.

	// Name of the action, for example scale_deployment. The action reference lists all
	// actions.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Action string `json:"action"`

	// Parameters of the action. The action reference lists them.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// Namespace of the target object. Derived from the parameters; must match them if
	// set.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// Name of the target object. Derived from the parameters; must match them if set.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ResourceName string `json:"resourceName,omitempty"`

	// The target object. Derived from the parameters; must match them if set. With uid
	// or resourceVersion, the execution fails if the object has another one.
	// +optional
	Target *Target `json:"target,omitempty"`

	// Name of the target cluster. Defaults to the cluster of the controller, the only
	// one supported.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	TargetCluster string `json:"targetCluster,omitempty"`

	// Maximum number of retries. The default depends on the action: 2 for most
	// idempotent actions, 0 for all other actions.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	// +optional
	MaxRetries *int32 `json:"maxRetries,omitempty"`

	// Timeout of the action, including all retries. The default and the maximum depend
	// on the action: for most actions, the default is 5m and the maximum is 15m.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="must be from 5s to 1h"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Set to true to approve the current plan without an entry in approvals. Counts as
	// one approval by the user who sets it.
	// +optional
	ApprovalReceived bool `json:"approvalReceived,omitempty"`

	// Time to wait for approval. Unset or 0s means the default of the controller, 1h.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +optional
	ApprovalTimeout *metav1.Duration `json:"approvalTimeout,omitempty"`

	// Approvals and rejections. Each approver adds one entry with the own user name,
	// and can replace it only for a new plan.
	// +listType=map
	// +listMapKey=approver
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Approvals []Approval `json:"approvals,omitempty"`

	// Conditions that must pass before the action starts.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PreConditions []Condition `json:"preConditions,omitempty"`

	// Conditions that must pass after the action.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PostConditions []Condition `json:"postConditions,omitempty"`

	// The RemediationRequest to which this execution belongs.
	// +optional
	RemediationRequestRef *ObjectReference `json:"remediationRequestRef,omitempty"`

	// The WorkflowExecution to which this execution belongs.
	// +optional
	WorkflowExecutionRef *ObjectReference `json:"workflowExecutionRef,omitempty"`

	// Number of the workflow step.
	// +kubebuilder:validation:Minimum=1
	// +optional
	StepNumber *int32 `json:"stepNumber,omitempty"`

	// The execution that this execution rolls back.
	// +optional
	RollbackOf *ObjectReference `json:"rollbackOf,omitempty"`

	// Environment of the target, for policies. Defaults to the environment label of
	// the target's namespace, or production without one.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Environment string `json:"environment,omitempty"`

	// User who requests the execution. Must be the user who creates the object, except
	// for trusted requesters.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`

	// Groups of the requester. Before the action, the controller checks again with
	// these groups whether the requester is allowed to request it. Must be groups of
	// the user who creates the object.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	RequesterGroups []string `json:"requesterGroups,omitempty"`

	// Reason of the request, for approvers and the audit.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`

	// ID of a related incident or alert.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CorrelationID string `json:"correlationID,omitempty"`

	// When the controller performs a dry run: before the action if a policy requires a
	// dry run (Policy), always before the action (Always), or instead of the action
	// (Only). With Policy and Always, the action runs after a successful dry run.
	// +kubebuilder:default=Policy
	// +optional
	DryRunMode DryRunMode `json:"dryRunMode,omitempty"`

	// Where the action runs: in a separate Job (Job), or in the controller with a
	// short-lived token of the action's service account (Inline), which the controller
	// must allow. Defaults to the setting of the controller.
	// +optional
	ExecutionMode ExecutionMode `json:"executionMode,omitempty"`

	// Set to true to cancel the execution. A running action is asked to stop.
	// +optional
	Cancel bool `json:"cancel,omitempty"`

	// User who cancelled. Must be the user who sets cancel; immutable afterwards.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CancelledBy string `json:"cancelledBy,omitempty"`

	// Set to true to end the phase rollback_ready before the end of the rollback
	// window.
	// +optional
	Finalize bool `json:"finalize,omitempty"`

	// Retention of the object after its end, in seconds, once its audit is written.
	// Defaults to the setting of the controller, 24 hours.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// DryRunMode says when the controller performs a dry run.
//
// +kubebuilder:validation:Enum=Policy;Always;Only
type DryRunMode string

// The dry-run modes.
const (
	DryRunPolicy DryRunMode = "Policy"
	DryRunAlways DryRunMode = "Always"
	DryRunOnly   DryRunMode = "Only"
)

// ExecutionMode says where an action runs.
//
// +kubebuilder:validation:Enum=Job;Inline
type ExecutionMode string

// The execution modes.
const (
	ExecuteInJob  ExecutionMode = "Job"
	ExecuteInline ExecutionMode = "Inline"
)

// Target is the object that an action changes.
type Target struct {
	// API group and version of the target, for example apps/v1.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind of the target, for example Deployment.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Kind string `json:"kind,omitempty"`
	// Namespace of the target. Empty for cluster-scoped objects.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the target.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// UID that the object must have.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Resource version that the object must have.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ObjectReference names an object.
type ObjectReference struct {
	// Name of the object.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace. Defaults to the namespace of the execution.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// Approval is the decision of one user about one plan.
type Approval struct {
	// User name of the approver, as authenticated by the API server.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Approver string `json:"approver"`

	// +kubebuilder:validation:Enum=Approve;Reject
	Decision ApprovalDecision `json:"decision"`

	// Reason for the decision.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`

	// Hash of the reviewed plan, from status.plan.hash.
	// +kubebuilder:validation:MaxLength=128
	PlanHash string `json:"planHash"`
}

// ApprovalDecision is the decision of an approver.
type ApprovalDecision string

// The decisions of approvers.
const (
	Approve ApprovalDecision = "Approve"
	Reject  ApprovalDecision = "Reject"
)

// Condition is a Rego rule that is evaluated before or after the action.
type Condition struct {
	// Name of the condition in results, events and logs.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type"`

	// Description for people. It has no effect on the evaluation.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Description string `json:"description,omitempty"`

	// Rego module. The condition passes if the rule `allow` evaluates to true. The
	// optional rule `message` states why the condition failed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	Rego string `json:"rego"`

	// If true, a failed precondition prevents the action and a failed postcondition
	// fails the execution. If false, a failure is only a warning.
	// +optional
	Required bool `json:"required,omitempty"`

	// Time to wait for the condition to pass. Defaults to 30s for preconditions and 2m
	// for postconditions.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="must be from 0s to 1h"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}
