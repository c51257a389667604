package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// KubernetesExecution requests one action on one Kubernetes object, for example to
// scale a Deployment.
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

	// The observed state of the execution: checks, decisions and result. Only the
	// execution controller writes the status.
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

	// Name of the action to run, for example scale_deployment. The command "fleetloop
	// exec actions" lists all actions.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Action string `json:"action"`

	// Parameters of the action as an object, for example {"namespace": "shop",
	// "deployment": "web", "replicas": 5}. Each action defines its own parameters.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// Namespace of the target object. Optional, because the controller derives the
	// namespace from the parameters. If set, it must match the parameters.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// Name of the target object. Optional, because the controller derives the name from
	// the parameters. If set, it must match the parameters.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ResourceName string `json:"resourceName,omitempty"`

	// The object that the action changes. Optional, because the controller derives the
	// object from the parameters. If set, it must match the parameters. If uid or
	// resourceVersion is set and the object in the cluster has another value, the
	// execution fails.
	// +optional
	Target *Target `json:"target,omitempty"`

	// Name of the cluster with the target object. Defaults to the cluster of the
	// controller, which is the only supported value.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	TargetCluster string `json:"targetCluster,omitempty"`

	// Maximum number of times that the controller retries a failed action, from 0 to 5.
	// The default depends on the action: 2 for most idempotent actions, 0 for all other
	// actions.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	// +optional
	MaxRetries *int32 `json:"maxRetries,omitempty"`

	// Maximum duration of the action, including all retries. The action fails after this
	// time. The default and the maximum depend on the action: for most actions, the
	// default is 5m and the maximum is 15m.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="must be from 5s to 1h"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Set to true to approve the current plan without an entry in approvals. The
	// controller counts it as one approval by the user who sets it.
	// +optional
	ApprovalReceived bool `json:"approvalReceived,omitempty"`

	// How long the execution waits for approval before it fails. Unset or 0s means the
	// default of the controller, which is 1h.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +optional
	ApprovalTimeout *metav1.Duration `json:"approvalTimeout,omitempty"`

	// Approvals and rejections of the plan in status.plan. Each approver adds one entry
	// under their own user name, and can replace it only if the plan has changed.
	// +listType=map
	// +listMapKey=approver
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Approvals []Approval `json:"approvals,omitempty"`

	// Conditions that the controller checks before the action starts. The action does not
	// start if a required condition fails.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PreConditions []Condition `json:"preConditions,omitempty"`

	// Conditions that the controller checks after the action. The execution fails if a
	// required condition fails.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PostConditions []Condition `json:"postConditions,omitempty"`

	// RemediationRequest object that caused this execution. For information only.
	// +optional
	RemediationRequestRef *ObjectReference `json:"remediationRequestRef,omitempty"`

	// WorkflowExecution object that caused this execution. For information only.
	// +optional
	WorkflowExecutionRef *ObjectReference `json:"workflowExecutionRef,omitempty"`

	// Number of the workflow step that this execution runs, starting at 1. For information
	// only.
	// +kubebuilder:validation:Minimum=1
	// +optional
	StepNumber *int32 `json:"stepNumber,omitempty"`

	// Earlier KubernetesExecution whose change this execution reverts.
	// +optional
	RollbackOf *ObjectReference `json:"rollbackOf,omitempty"`

	// Environment of the target, for example staging. Safety policies can read it.
	// Defaults to the environment label of the namespace of the target, or to production
	// if the namespace has no such label.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Environment string `json:"environment,omitempty"`

	// User who requests the execution. Must be the user who creates the object. Only users
	// that the controller configuration trusts may name another user.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`

	// Groups of the user who creates this object. The user must be a member of each group.
	// Before the action starts, the controller uses these groups to check again that the
	// user may request the action.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	RequesterGroups []string `json:"requesterGroups,omitempty"`

	// Why the user requests the execution. Approvers and the audit see this text.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`

	// ID of a related incident or alert. For information only.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CorrelationID string `json:"correlationID,omitempty"`

	// When the controller performs a dry run: before the action if a policy requires a
	// dry run (Policy), always before the action (Always), or instead of the action
	// (Only). With Policy and Always, the action runs after a successful dry run.
	// +kubebuilder:default=Policy
	// +optional
	DryRunMode DryRunMode `json:"dryRunMode,omitempty"`

	// Where the action runs: Job runs it in a separate Job, Inline runs it in the
	// controller with a short-lived token of the action's ServiceAccount. Inline requires
	// that the controller configuration allows it. Defaults to the setting of the
	// controller.
	// +optional
	ExecutionMode ExecutionMode `json:"executionMode,omitempty"`

	// Set to true to cancel the execution. The controller does not start the action, or
	// asks a running action to stop. Cannot be reset to false.
	// +optional
	Cancel bool `json:"cancel,omitempty"`

	// User who cancelled the execution. Must be the user who sets cancel. Immutable
	// afterwards.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CancelledBy string `json:"cancelledBy,omitempty"`

	// Set to true to complete the execution now. Without it, an execution that can be
	// rolled back stays in phase rollback_ready until the time for a rollback is over.
	// Cannot be reset to false.
	// +optional
	Finalize bool `json:"finalize,omitempty"`

	// How long the controller keeps the object after the execution has finished, in
	// seconds. The controller deletes the object only after its audit is written. Defaults
	// to the setting of the controller, which is 24 hours.
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
	// API group and version of the object, for example apps/v1.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind of the object, for example Deployment.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Kind string `json:"kind,omitempty"`
	// Namespace of the object. Empty for cluster-scoped objects.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object, as in metadata.name.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// UID that the object must have. If the object has another UID, the execution fails.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Resource version that the object must have. If the object has another one, the
	// execution fails.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ObjectReference names an object.
type ObjectReference struct {
	// Name of the object that is referred to, for example the KubernetesExecution that
	// spec.rollbackOf reverts.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of the object that is referred to. Defaults to the namespace of this
	// KubernetesExecution.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// UID of the object. Distinguishes it from another object with the same name.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// Approval is the decision of one user about one plan.
type Approval struct {
	// User name of the approver, as authenticated by the API server.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Approver string `json:"approver"`

	// Decision of the approver: Approve or Reject. One rejection is enough to end the
	// execution.
	// +kubebuilder:validation:Enum=Approve;Reject
	Decision ApprovalDecision `json:"decision"`

	// Why the approver decided so. The audit records this text.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`

	// Hash of the plan that the approver reviewed, copied from status.plan.hash. The
	// approval is valid only for this plan.
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
	// Name of the condition. It appears in the results, in Kubernetes events and in logs.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type"`

	// Description of the condition, shown to users. It has no effect on the evaluation.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Description string `json:"description,omitempty"`

	// Rego module that decides whether the condition passes. The condition passes if the
	// rule `allow` evaluates to true. The optional rule `message` says why the condition
	// failed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	Rego string `json:"rego"`

	// Effect of a failure. If true, a failed precondition prevents the action and a failed
	// postcondition fails the execution. If false, a failure is only a warning. Defaults
	// to false.
	// +optional
	Required bool `json:"required,omitempty"`

	// How long the controller repeats the evaluation until the condition passes, from 0s
	// to 1h. Defaults to 30s for preconditions and 2m for postconditions.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="must be from 0s to 1h"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}
