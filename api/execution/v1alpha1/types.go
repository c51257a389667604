package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// KubernetesExecution is one action that is to be done to one object.
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

	// What is asked for. It does not change, but for approvals, cancel and
	// finalize.
	// +required
	Spec KubernetesExecutionSpec `json:"spec"`

	// What was checked, decided and done. The controller alone writes it.
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

// KubernetesExecutionSpec is what is asked for.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf || self.action == oldSelf.action && has(self.parameters) == has(oldSelf.parameters) && (has(self.targetNamespace) ? has(oldSelf.targetNamespace) && self.targetNamespace == oldSelf.targetNamespace : !has(oldSelf.targetNamespace)) && (has(self.resourceName) ? has(oldSelf.resourceName) && self.resourceName == oldSelf.resourceName : !has(oldSelf.resourceName)) && (has(self.target) ? has(oldSelf.target) && self.target == oldSelf.target : !has(oldSelf.target)) && (has(self.targetCluster) ? has(oldSelf.targetCluster) && self.targetCluster == oldSelf.targetCluster : !has(oldSelf.targetCluster)) && (has(self.maxRetries) ? has(oldSelf.maxRetries) && self.maxRetries == oldSelf.maxRetries : !has(oldSelf.maxRetries)) && (has(self.timeout) ? has(oldSelf.timeout) && self.timeout == oldSelf.timeout : !has(oldSelf.timeout)) && (has(self.approvalTimeout) ? has(oldSelf.approvalTimeout) && self.approvalTimeout == oldSelf.approvalTimeout : !has(oldSelf.approvalTimeout)) && (has(self.ttlSecondsAfterFinished) ? has(oldSelf.ttlSecondsAfterFinished) && self.ttlSecondsAfterFinished == oldSelf.ttlSecondsAfterFinished : !has(oldSelf.ttlSecondsAfterFinished)) && (has(self.preConditions) ? has(oldSelf.preConditions) && self.preConditions == oldSelf.preConditions : !has(oldSelf.preConditions)) && (has(self.postConditions) ? has(oldSelf.postConditions) && self.postConditions == oldSelf.postConditions : !has(oldSelf.postConditions)) && (has(self.remediationRequestRef) ? has(oldSelf.remediationRequestRef) && self.remediationRequestRef == oldSelf.remediationRequestRef : !has(oldSelf.remediationRequestRef)) && (has(self.workflowExecutionRef) ? has(oldSelf.workflowExecutionRef) && self.workflowExecutionRef == oldSelf.workflowExecutionRef : !has(oldSelf.workflowExecutionRef)) && (has(self.stepNumber) ? has(oldSelf.stepNumber) && self.stepNumber == oldSelf.stepNumber : !has(oldSelf.stepNumber)) && (has(self.rollbackOf) ? has(oldSelf.rollbackOf) && self.rollbackOf == oldSelf.rollbackOf : !has(oldSelf.rollbackOf)) && (has(self.environment) ? has(oldSelf.environment) && self.environment == oldSelf.environment : !has(oldSelf.environment)) && (has(self.requestedBy) ? has(oldSelf.requestedBy) && self.requestedBy == oldSelf.requestedBy : !has(oldSelf.requestedBy)) && (has(self.requesterGroups) ? has(oldSelf.requesterGroups) && self.requesterGroups == oldSelf.requesterGroups : !has(oldSelf.requesterGroups)) && (has(self.reason) ? has(oldSelf.reason) && self.reason == oldSelf.reason : !has(oldSelf.reason)) && (has(self.correlationID) ? has(oldSelf.correlationID) && self.correlationID == oldSelf.correlationID : !has(oldSelf.correlationID)) && (has(self.dryRun) ? has(oldSelf.dryRun) && self.dryRun == oldSelf.dryRun : !has(oldSelf.dryRun)) && (has(self.executionMode) ? has(oldSelf.executionMode) && self.executionMode == oldSelf.executionMode : !has(oldSelf.executionMode))",message="action, parameters and all else that is asked for do not change, but for approvals, approvalReceived, cancel and finalize: create another execution"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.approvals) || has(self.approvals) && oldSelf.approvals.all(a, self.approvals.exists(b, a == b || a.approver == b.approver && a.planHash != b.planHash))",message="approvals are only added, or put in the place of one's own of another plan"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.approvalReceived) || !oldSelf.approvalReceived || has(self.approvalReceived) && self.approvalReceived",message="approvalReceived does not go back to false"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cancel) || !oldSelf.cancel || has(self.cancel) && self.cancel && (has(self.cancelledBy) ? has(oldSelf.cancelledBy) && self.cancelledBy == oldSelf.cancelledBy : !has(oldSelf.cancelledBy))",message="cancel does not go back to false, nor does who cancelled change"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.finalize) || !oldSelf.finalize || has(self.finalize) && self.finalize",message="finalize does not go back to false"
type KubernetesExecutionSpec struct {
	// The rules above are evaluated at each write of the status, too, and cost by the
	// fields that they look up. So the one about all fields asks first whether any has
	// changed, and a rule about the values of one field is at that field.

	// What to do: the name of an entry of the action catalogue, such as
	// scale_deployment.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Action string `json:"action"`

	// The parameters of the action, as the catalogue has them.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// The namespace of the object to act on. It follows from the parameters;
	// where both are given they must agree.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// The name of the object to act on. It follows from the parameters; where
	// both are given they must agree.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ResourceName string `json:"resourceName,omitempty"`

	// The object to act on, in full. It follows from the parameters; where both
	// are given they must agree. With a uid or a resourceVersion the action is
	// refused for any other object or state.
	// +optional
	Target *Target `json:"target,omitempty"`

	// The cluster to act on. Only the cluster of the controller is served, which
	// empty means.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	TargetCluster string `json:"targetCluster,omitempty"`

	// How often the action is tried again. Unset is the catalogue's: 2 for most
	// actions that can be repeated, 0 for those that cannot.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	// +optional
	MaxRetries *int32 `json:"maxRetries,omitempty"`

	// How long the action may take, all attempts together. Unset is the
	// catalogue's: 5m for most. It is at most what the catalogue allows, 15m for most.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="must be from 5s to 1h"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Whether somebody has approved of the execution. It counts as one approval,
	// by whoever was allowed to set it.
	// +optional
	ApprovalReceived bool `json:"approvalReceived,omitempty"`

	// How long an approval is waited for. Unset and 0s are the controller's, 1h.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +optional
	ApprovalTimeout *metav1.Duration `json:"approvalTimeout,omitempty"`

	// Who approved or rejected. Entries are only added, each by the one that it
	// names, or put in the place of one's own that is about another plan.
	// +listType=map
	// +listMapKey=approver
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Approvals []Approval `json:"approvals,omitempty"`

	// What must hold before the action.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PreConditions []Condition `json:"preConditions,omitempty"`

	// What must hold after the action.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	PostConditions []Condition `json:"postConditions,omitempty"`

	// The RemediationRequest that this is a step of.
	// +optional
	RemediationRequestRef *ObjectReference `json:"remediationRequestRef,omitempty"`

	// The WorkflowExecution that this is a step of.
	// +optional
	WorkflowExecutionRef *ObjectReference `json:"workflowExecutionRef,omitempty"`

	// Which step of the workflow this is.
	// +kubebuilder:validation:Minimum=1
	// +optional
	StepNumber *int32 `json:"stepNumber,omitempty"`

	// The execution whose change this takes back.
	// +optional
	RollbackOf *ObjectReference `json:"rollbackOf,omitempty"`

	// The environment of the target, for policies. Unset is what the label on
	// the target's namespace says; where nothing does it is production.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Environment string `json:"environment,omitempty"`

	// Who asks. Whoever creates the object can name nobody else.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`

	// The groups of the requester, by which the controller checks again before the
	// action whether the requester may request it. The API server accepts no group
	// that the request does not come from.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	RequesterGroups []string `json:"requesterGroups,omitempty"`

	// Why.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`

	// What this belongs to elsewhere: an incident, an alert.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CorrelationID string `json:"correlationID,omitempty"`

	// Whether the change is tried out first: if the policy asks for it (Policy),
	// in any case (Always), or with nothing to follow (Only).
	// +kubebuilder:default=Policy
	// +optional
	DryRun DryRunMode `json:"dryRun,omitempty"`

	// Where the action runs: in a Job of its own (Job), or in the controller with
	// a short-lived token of the action's service account (Inline), which must be
	// switched on there. Unset is the controller's choice.
	// +optional
	ExecutionMode ExecutionMode `json:"executionMode,omitempty"`

	// Stop it. An action under way is told to end.
	// +optional
	Cancel bool `json:"cancel,omitempty"`

	// Who cancelled. Whoever does can name nobody else, and nobody can later.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CancelledBy string `json:"cancelledBy,omitempty"`

	// End the time in which the parent can look at rollback_ready.
	// +optional
	Finalize bool `json:"finalize,omitempty"`

	// How long the object is kept after its end, once what became of it is in the
	// audit. Unset is the controller's, 24 hours.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// DryRunMode says whether a change is tried out first.
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

// Target is an object to act on.
type Target struct {
	// +kubebuilder:validation:MaxLength=253
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Kind string `json:"kind,omitempty"`
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// The one object that is meant.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// The one state of the object that is meant.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ObjectReference names an object.
type ObjectReference struct {
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Empty is the namespace of the execution.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// Approval is one person's decision about one plan.
type Approval struct {
	// The user name, as the API server knows it. Nobody can write another's.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Approver string `json:"approver"`

	// +kubebuilder:validation:Enum=Approve;Reject
	Decision ApprovalDecision `json:"decision"`

	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Reason string `json:"reason,omitempty"`

	// The hash of the plan that was looked at: status.plan.hash.
	// +kubebuilder:validation:MaxLength=128
	PlanHash string `json:"planHash"`
}

// ApprovalDecision is what an approver decides.
type ApprovalDecision string

// The decisions of approvers.
const (
	Approve ApprovalDecision = "Approve"
	Reject  ApprovalDecision = "Reject"
)

// Condition is a rule in Rego that must hold before or after the action.
type Condition struct {
	// What it is called, in results, events and logs.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type"`

	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Description string `json:"description,omitempty"`

	// A module in Rego whose rule allow says whether the condition holds, and
	// whose rule message, if there is one, says why it does not.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	Rego string `json:"rego"`

	// Whether it stops the action (before) or has it count as failed (after). If
	// not, a warning is recorded.
	// +optional
	Required bool `json:"required,omitempty"`

	// How long the condition may take to hold. Unset is 30s before and 2m after
	// the action.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="must be from 0s to 1h"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}
