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

	// Observed state of this KubernetesExecution: results of the checks, approvals, and the
	// result of the action. Only the execution controller writes the status.
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
// +kubebuilder:validation:XValidation:rule="self == oldSelf || self.action == oldSelf.action && has(self.parameters) == has(oldSelf.parameters) && (has(self.targetNamespace) ? has(oldSelf.targetNamespace) && self.targetNamespace == oldSelf.targetNamespace : !has(oldSelf.targetNamespace)) && (has(self.resourceName) ? has(oldSelf.resourceName) && self.resourceName == oldSelf.resourceName : !has(oldSelf.resourceName)) && (has(self.target) ? has(oldSelf.target) && self.target == oldSelf.target : !has(oldSelf.target)) && (has(self.targetCluster) ? has(oldSelf.targetCluster) && self.targetCluster == oldSelf.targetCluster : !has(oldSelf.targetCluster)) && (has(self.maxRetries) ? has(oldSelf.maxRetries) && self.maxRetries == oldSelf.maxRetries : !has(oldSelf.maxRetries)) && (has(self.timeout) ? has(oldSelf.timeout) && self.timeout == oldSelf.timeout : !has(oldSelf.timeout)) && (has(self.approvalTimeout) ? has(oldSelf.approvalTimeout) && self.approvalTimeout == oldSelf.approvalTimeout : !has(oldSelf.approvalTimeout)) && (has(self.ttlSecondsAfterFinished) ? has(oldSelf.ttlSecondsAfterFinished) && self.ttlSecondsAfterFinished == oldSelf.ttlSecondsAfterFinished : !has(oldSelf.ttlSecondsAfterFinished)) && (has(self.preConditions) ? has(oldSelf.preConditions) && self.preConditions == oldSelf.preConditions : !has(oldSelf.preConditions)) && (has(self.postConditions) ? has(oldSelf.postConditions) && self.postConditions == oldSelf.postConditions : !has(oldSelf.postConditions)) && (has(self.remediationRequestRef) ? has(oldSelf.remediationRequestRef) && self.remediationRequestRef == oldSelf.remediationRequestRef : !has(oldSelf.remediationRequestRef)) && (has(self.workflowExecutionRef) ? has(oldSelf.workflowExecutionRef) && self.workflowExecutionRef == oldSelf.workflowExecutionRef : !has(oldSelf.workflowExecutionRef)) && (has(self.stepNumber) ? has(oldSelf.stepNumber) && self.stepNumber == oldSelf.stepNumber : !has(oldSelf.stepNumber)) && (has(self.rollbackOf) ? has(oldSelf.rollbackOf) && self.rollbackOf == oldSelf.rollbackOf : !has(oldSelf.rollbackOf)) && (has(self.environment) ? has(oldSelf.environment) && self.environment == oldSelf.environment : !has(oldSelf.environment)) && (has(self.requestedBy) ? has(oldSelf.requestedBy) && self.requestedBy == oldSelf.requestedBy : !has(oldSelf.requestedBy)) && (has(self.requestedByAgent) ? has(oldSelf.requestedByAgent) && self.requestedByAgent == oldSelf.requestedByAgent : !has(oldSelf.requestedByAgent)) && (has(self.requesterGroups) ? has(oldSelf.requesterGroups) && self.requesterGroups == oldSelf.requesterGroups : !has(oldSelf.requesterGroups)) && (has(self.reason) ? has(oldSelf.reason) && self.reason == oldSelf.reason : !has(oldSelf.reason)) && (has(self.correlationID) ? has(oldSelf.correlationID) && self.correlationID == oldSelf.correlationID : !has(oldSelf.correlationID)) && (has(self.dryRunMode) ? has(oldSelf.dryRunMode) && self.dryRunMode == oldSelf.dryRunMode : !has(oldSelf.dryRunMode)) && (has(self.executionMode) ? has(oldSelf.executionMode) && self.executionMode == oldSelf.executionMode : !has(oldSelf.executionMode))",message="spec is immutable except for approvals, approvalReceived, cancel, cancelledBy and finalize: create another execution"
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

	// Namespace of the object that the action changes. You can set it here or in parameters.
	// If it is set in both, the values must be equal.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// Name of the object that the action changes. You can set it here or in parameters. If
	// it is set in both, the values must be equal.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ResourceName string `json:"resourceName,omitempty"`

	// The object that the action changes. Optional if parameters name the object. A field
	// that is set both here and in parameters must have equal values.
	// +optional
	Target *Target `json:"target,omitempty"`

	// Name of the cluster that contains the object to change. Must be the cluster of the
	// controller, which is also the default.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	TargetCluster string `json:"targetCluster,omitempty"`

	// Maximum number of times that the controller retries the action after a temporary
	// failure, from 0 (no retry) to 5. The default is 0, 1 or 2, depending on the action.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	// +optional
	MaxRetries *int32 `json:"maxRetries,omitempty"`

	// Maximum duration of the action, including all retries. The action fails after this
	// time. The default depends on the action and is between 30s and 15m. The maximum is
	// 15m, or 1h for the action drain_node.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="must be from 5s to 1h"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Set to true to approve the plan (the API requests in status.plan) without an entry in
	// approvals. Counts as one approval, but only if approvals is empty. Must be unset at
	// creation and cannot be reset to false.
	// +optional
	ApprovalReceived bool `json:"approvalReceived,omitempty"`

	// How long the execution waits for approval before it fails. Unset or 0s means the
	// approval timeout of the controller, by default 1h.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +optional
	ApprovalTimeout *metav1.Duration `json:"approvalTimeout,omitempty"`

	// Approvals and rejections of the plan, the API requests in status.plan. Each approver
	// adds one entry under their own user name. An approver can replace their entry only
	// after the plan has changed.
	// +listType=map
	// +listMapKey=approver
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Approvals []Approval `json:"approvals,omitempty"`

	// Conditions, written as Rego rules, that the controller checks before the action
	// starts. The action does not start if a required condition fails.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PreConditions []Condition `json:"preConditions,omitempty"`

	// Conditions, written as Rego rules, that the controller checks after the action. The
	// execution fails if a required condition fails.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PostConditions []Condition `json:"postConditions,omitempty"`

	// RemediationRequest that caused this execution. RemediationRequest is a resource of
	// another system. The controller only records the reference.
	// +optional
	RemediationRequestRef *ObjectReference `json:"remediationRequestRef,omitempty"`

	// WorkflowExecution that caused this execution. WorkflowExecution is a resource of
	// another system. The controller only records the reference.
	// +optional
	WorkflowExecutionRef *ObjectReference `json:"workflowExecutionRef,omitempty"`

	// Number of the step that this execution performs in the workflow of
	// workflowExecutionRef, starting at 1. For information only.
	// +kubebuilder:validation:Minimum=1
	// +optional
	StepNumber *int32 `json:"stepNumber,omitempty"`

	// Earlier KubernetesExecution that this execution rolls back. The fields action and
	// parameters must equal rollbackAction and rollbackParameters in
	// status.rollbackInformation of the earlier one. Otherwise this execution fails.
	// +optional
	RollbackOf *ObjectReference `json:"rollbackOf,omitempty"`

	// Environment of the object that the action changes, for example staging. The safety
	// policies (Rego rules that allow or deny executions) can read it. Defaults to the
	// environment label of the object's namespace, or to production without that label.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Environment string `json:"environment,omitempty"`

	// User who requests the action. Must be the user who creates this KubernetesExecution.
	// Only users that the controller configuration trusts can set the name of another user.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`

	// Name and version of the assistant (AI agent) that makes this request on behalf of the
	// user in requestedBy, for example claude-code 2.1. Unset if the user makes it. The user
	// in requestedBy can then not approve the plan. The safety policies can read this field.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	RequestedByAgent string `json:"requestedByAgent,omitempty"`

	// Groups of the user in requestedBy. The user must be a member of each group. Before the
	// action starts, the controller uses these groups to check again that the user may
	// request the action.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	RequesterGroups []string `json:"requesterGroups,omitempty"`

	// Why the user requests the action, as free text. Approvers can read it, and the audit
	// records contain it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`

	// ID of a related incident or alert. For information only.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CorrelationID string `json:"correlationID,omitempty"`

	// When the controller performs a dry run, in which the API server checks the requests
	// and persists nothing. Policy (the default): before the action, if a safety policy
	// requires it. Always: always before the action. Only: instead of the action.
	// +kubebuilder:default=Policy
	// +optional
	DryRunMode DryRunMode `json:"dryRunMode,omitempty"`

	// Where the action runs. Job: in a separate Job. Inline: in the controller, with a
	// short-lived token of the action's ServiceAccount, if the controller configuration
	// allows it for this action. Defaults to the setting of the controller.
	// +optional
	ExecutionMode ExecutionMode `json:"executionMode,omitempty"`

	// Set to true to cancel the execution. An action that has not started does not start. A
	// running action is asked to stop. Cannot be reset to false.
	// +optional
	Cancel bool `json:"cancel,omitempty"`

	// User who cancelled the execution. Optional. Must be the user who sets cancel, and must
	// be set in the same request. Immutable afterwards.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CancelledBy string `json:"cancelledBy,omitempty"`

	// Set to true to end the phase rollback_ready now. In this phase, the action has run and
	// a user can roll it back. Without finalize, the phase ends after the rollback window of
	// the controller, by default 5m. Cannot be reset to false.
	// +optional
	Finalize bool `json:"finalize,omitempty"`

	// How long the controller keeps this KubernetesExecution after it has finished, in
	// seconds. The controller keeps it longer if audit records or change events are not
	// delivered yet. Defaults to the retention time of the controller, by default 24 hours.
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
	// API group and version of the object that the action changes, for example apps/v1.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind of the object that the action changes, for example Deployment.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Kind string `json:"kind,omitempty"`
	// Namespace of the object that the action changes. Empty for cluster-scoped objects.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object that the action changes, as in metadata.name.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// Expected UID of the object that the action changes. If the object has another UID, the
	// execution fails. Empty accepts any UID.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Expected resourceVersion of the object that the action changes. If the object has
	// another one, the execution fails. Empty accepts any version.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ObjectReference names an object.
type ObjectReference struct {
	// Name (metadata.name) of the referenced object: a RemediationRequest in
	// remediationRequestRef, a WorkflowExecution in workflowExecutionRef, or a
	// KubernetesExecution in rollbackOf.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of the referenced object: a RemediationRequest in remediationRequestRef, a
	// WorkflowExecution in workflowExecutionRef, or a KubernetesExecution in rollbackOf.
	// Defaults to the namespace of this KubernetesExecution.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// UID of the referenced object: a RemediationRequest in remediationRequestRef, a
	// WorkflowExecution in workflowExecutionRef, or a KubernetesExecution in rollbackOf. The
	// controller checks the UID only in rollbackOf: this execution fails if the referenced
	// KubernetesExecution has another UID.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// Approval is the decision of one user about one plan.
type Approval struct {
	// User name of the approver, as authenticated by the API server.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Approver string `json:"approver"`

	// Decision of the approver: Approve or Reject. The execution fails after one rejection.
	// +kubebuilder:validation:Enum=Approve;Reject
	Decision ApprovalDecision `json:"decision"`

	// Why the approver approved or rejected the plan (the API requests in status.plan). The
	// audit records contain this text.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`

	// Hash of the plan (the API requests in status.plan) that the approver reviewed, copied
	// from status.plan.hash. The entry counts only while status.plan has this hash.
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

	// Module in Rego, the policy language of Open Policy Agent. The condition passes if the
	// rule `allow` evaluates to true. The optional rule `message` returns the text that
	// explains a failure.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	Rego string `json:"rego"`

	// Effect of a failure. If true, a failed precondition prevents the action and a failed
	// postcondition fails the execution. If false, a failure is only a warning. Defaults
	// to false.
	// +optional
	Required bool `json:"required,omitempty"`

	// How long the controller repeats the evaluation of a condition that does not pass, from
	// 0s (evaluate once) to 1h. Then the condition fails. Defaults to 30s for preconditions
	// and 2m for postconditions.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="must be from 0s to 1h"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}
