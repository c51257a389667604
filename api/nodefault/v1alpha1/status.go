package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Phase is the phase of the repair of a node.
//
// +kubebuilder:validation:Enum=Observed;Pending;DryRun;Quarantined;Draining;Remediating;Recovering;Held;Overridden;Stuck;Healthy;Gone
type Phase string

// The phases. The table of transitions is in docs/states/node-fault.md.
const (
	// PhaseObserved means that no rule requires an action.
	PhaseObserved Phase = "Observed"
	// PhasePending means that the quarantine is blocked. Message gives the cause.
	PhasePending Phase = "Pending"
	// PhaseDryRun means that actions are reported but not performed.
	PhaseDryRun Phase = "DryRun"
	// PhaseQuarantined means that the node is cordoned, and no other action runs.
	PhaseQuarantined Phase = "Quarantined"
	// PhaseDraining means that the pods of the node are being evicted.
	PhaseDraining Phase = "Draining"
	// PhaseRemediating means that a reboot or termination is in progress.
	PhaseRemediating Phase = "Remediating"
	// PhaseRecovering means that no fault is left. The node is released after
	// quarantine.healthy_for.
	PhaseRecovering Phase = "Recovering"
	// PhaseHeld means that the node is healthy, and an annotation prevents its release.
	PhaseHeld Phase = "Held"
	// PhaseOverridden means that a person has uncordoned the node.
	PhaseOverridden Phase = "Overridden"
	// PhaseStuck means that automatic repair has ended. A person must repair the
	// node.
	PhaseStuck Phase = "Stuck"
	// PhaseHealthy means that the node was released.
	PhaseHealthy Phase = "Healthy"
	// PhaseGone means that the node was deleted.
	PhaseGone Phase = "Gone"
)

// The conditions of a NodeFault.
const (
	ConditionQuarantined  = "Quarantined"
	ConditionDrained      = "Drained"
	ConditionRemediated   = "Remediated"
	ConditionOverridden   = "Overridden"
	ConditionBudgetDenied = "BudgetDenied"
)

// NodeFaultStatus is the state of the repair of a node.
type NodeFaultStatus struct {
	// UID of the node. A new node with the same name has another UID.
	// +optional
	NodeUID types.UID `json:"nodeUID,omitempty"`

	// ID of the repair session, which lasts from the first fault to the release.
	// +optional
	Session string `json:"session,omitempty"`

	// Phase of the repair.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Time of the last phase change.
	// +optional
	PhaseChangedAt *metav1.Time `json:"phaseChangedAt,omitempty"`

	// Cause of the phase: what the controller waits for, and how to unblock it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

	// Error codes of the fault that started the session, or else its check.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	FaultCode string `json:"faultCode,omitempty"`

	// Fault that started the session.
	// +optional
	TriggeredBy *Fault `json:"triggeredBy,omitempty"`

	// Actions that the rules require, as of the last evaluation.
	// +optional
	DesiredActions *DesiredActions `json:"desiredActions,omitempty"`

	// Changes of the controller that are on the node.
	// +optional
	Owned *Owned `json:"owned,omitempty"`

	// Progress of the drain.
	// +optional
	Drain *DrainStatus `json:"drain,omitempty"`

	// Progress of the remediation.
	// +optional
	Remediation *RemediationStatus `json:"remediation,omitempty"`

	// Time since which no fault requires an action.
	// +optional
	HealthySince *metav1.Time `json:"healthySince,omitempty"`

	// Manual override: a person has uncordoned the node. It ends with a new fault,
	// with the removal of its annotation from the node, or after
	// quarantine.override_ttl.
	// +optional
	Overridden *Overridden `json:"overridden,omitempty"`

	// Conditions: Quarantined, Drained, Remediated, Overridden and BudgetDenied.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Generation that the controller last processed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Past actions, oldest first. The last 32 are retained, and undelivered ones
	// up to 64 in total.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	History []Record `json:"history,omitempty"`

	// Sequence number of the last record in the history.
	// +optional
	LastSequence int64 `json:"lastSequence,omitempty"`

	// Delivery state of this node's change events, by sink name.
	// +optional
	SinkDeliveries map[string]DeliveryStatus `json:"sinkDeliveries,omitempty"`

	// Number of change events that wait for delivery to at least one sink.
	// +optional
	UndeliveredChangeEvents int32 `json:"undeliveredChangeEvents,omitempty"`

	// Value of the annotation fleetloop.io/resend-change-events that was processed
	// last.
	// +optional
	LastResendRequest string `json:"lastResendRequest,omitempty"`

	// Number of records removed from the history before every sink received them.
	// +optional
	Dropped int64 `json:"dropped,omitempty"`
}

// DesiredActions are the actions that the rules require.
type DesiredActions struct {
	// Names of the rules that matched.
	// +listType=atomic
	// +optional
	MatchedRules []string `json:"matchedRules,omitempty"`
	// Whether to cordon the node.
	// +optional
	Cordon bool `json:"cordon,omitempty"`
	// Whether to drain the node.
	// +optional
	Drain bool `json:"drain,omitempty"`
	// Taints to add to the node.
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Remedies to try, in this order.
	// +listType=atomic
	// +optional
	Remedies []Remedy `json:"remedies,omitempty"`
	// Whether the actions are only reported, and not performed.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
}

// Remedy repairs a node after it is cordoned and drained.
//
// +kubebuilder:validation:Enum=reboot;terminate;support
type Remedy string

// The remedies.
const (
	RemedyReboot    Remedy = "reboot"
	RemedyTerminate Remedy = "terminate"
	// RemedySupport asks a person to repair the node.
	RemedySupport Remedy = "support"
)

// Owned lists the changes of the controller to a node. The annotation
// fleetloop.io/node-fault-owned of the node is authoritative.
type Owned struct {
	// ID of the session that made the changes.
	Session string `json:"session"`
	// Whether the controller cordoned the node. It is false if the node was
	// cordoned before.
	Cordon bool `json:"cordon"`
	// Taints that the controller added.
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Time of the changes.
	AppliedAt metav1.MicroTime `json:"appliedAt"`
}

// DrainState is the state of a drain.
//
// +kubebuilder:validation:Enum=Running;Completed;Failed;Cancelled
type DrainState string

// The states of a drain.
const (
	DrainRunning   DrainState = "Running"
	DrainCompleted DrainState = "Completed"
	DrainFailed    DrainState = "Failed"
	DrainCancelled DrainState = "Cancelled"
)

// DrainStatus is the progress of a drain.
type DrainStatus struct {
	// State of the drain.
	State DrainState `json:"state"`
	// Start of the drain.
	StartedAt metav1.Time `json:"startedAt"`
	// Time after which the drain fails.
	Deadline metav1.Time `json:"deadline"`
	// End of the drain.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Number of pods that must still leave the node.
	Remaining int32 `json:"remaining"`
	// Number of remaining pods that are terminating.
	Terminating int32 `json:"terminating,omitempty"`
	// Number of accepted evictions.
	Evicted int32 `json:"evicted,omitempty"`
	// Pods that cannot be evicted yet. At most eight are listed.
	// +listType=atomic
	// +optional
	BlockedPods []BlockedPod `json:"blockedPods,omitempty"`
	// Summary of the progress.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// BlockedPod is a pod that cannot be evicted yet.
type BlockedPod struct {
	// Pod, as namespace/name.
	Pod string `json:"pod"`
	// Blocking PodDisruptionBudget (namespace/name), or one of terminating,
	// bare-pod, empty-dir, waiting, disruption-budget, namespace-terminating,
	// rejected and api-error.
	BlockedBy string `json:"blockedBy"`
	// Detail, such as the answer of the API server.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
}

// RemedyState is the state of a remedy.
//
// +kubebuilder:validation:Enum=Running;Succeeded;Failed;Exhausted
type RemedyState string

// The states of a remedy.
const (
	RemedyRunning   RemedyState = "Running"
	RemedySucceeded RemedyState = "Succeeded"
	RemedyFailed    RemedyState = "Failed" // the next attempt follows
	// RemedyExhausted means that no remedy is left.
	RemedyExhausted RemedyState = "Exhausted"
)

// RemediationStatus is the progress of the remediation.
type RemediationStatus struct {
	// State of the current attempt.
	State RemedyState `json:"state"`
	// Remedy of the current attempt.
	Action Remedy `json:"action"`
	// Index of the remedy in desiredActions.remedies, from 0.
	RemedyIndex int32 `json:"remedyIndex"`
	// Number of the attempt within the session, from 1.
	Attempt int32 `json:"attempt"`
	// Start of the attempt.
	StartedAt metav1.Time `json:"startedAt"`
	// Time after which the attempt fails.
	Deadline metav1.Time `json:"deadline"`
	// End of the attempt.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Kind of the object that performs the remedy: RebootNode, TerminateNode, or
	// Job for the verification.
	// +optional
	ObjectKind string `json:"objectKind,omitempty"`
	// Name of the object that performs the remedy.
	// +optional
	ObjectName string `json:"objectName,omitempty"`
	// Boot ID of the node before the reboot. A new boot ID proves the reboot.
	// +optional
	PreviousBootID string `json:"previousBootID,omitempty"`
	// Progress, or the cause of a failure.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// Overridden is a manual override of a session.
type Overridden struct {
	// ID of the overridden session.
	Session string `json:"session"`
	// Time the override was detected.
	DetectedAt metav1.Time `json:"detectedAt"`
	// Faults covered by the override, as source/check/entity.
	// +listType=atomic
	// +optional
	Faults []string `json:"faults,omitempty"`
}

// Record is one action in the history. Each record becomes a change event.
type Record struct {
	// Sequence number of the record.
	Sequence int64 `json:"sequence"`
	// ID of the change event.
	ID string `json:"id"`
	// Action that was performed, such as cordon or drain-started.
	Action string `json:"action"`
	// Component that performed the action.
	Source string `json:"source"`
	// Time of the action.
	At metav1.MicroTime `json:"at"`
	// ID of the session.
	Session string `json:"session,omitempty"`
	// Outcome: succeeded or failed.
	// +optional
	Outcome string `json:"outcome,omitempty"`
	// Reason of the action, or cause of a failure.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Reason string `json:"reason,omitempty"`
	// Check of the fault that started the session.
	// +optional
	Check string `json:"check,omitempty"`
	// Error codes of that fault.
	// +listType=atomic
	// +optional
	ErrorCodes []string `json:"errorCodes,omitempty"`
	// Agent that reported that fault.
	// +optional
	Agent string `json:"agent,omitempty"`
	// Whether that fault is fatal.
	// +optional
	Fatal bool `json:"fatal,omitempty"`
	// Message of that fault.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
	// Whether the action was only reported, and not performed.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// Object of the action, such as rebootnodes/gpu-node-01-k3f9c2-1.
	// +optional
	Object string `json:"object,omitempty"`
}

// DeliveryStatus is the delivery state of a change event sink.
type DeliveryStatus struct {
	// Sequence number up to which every record is delivered, rejected, dropped,
	// or older than the sink.
	ProcessedSequence int64 `json:"processedSequence"`
	// Time from which records are sent to the sink.
	// +optional
	EnabledAt *metav1.Time `json:"enabledAt,omitempty"`
	// Time of the last successful delivery.
	// +optional
	LastDeliveredAt *metav1.Time `json:"lastDeliveredAt,omitempty"`
	// Error of the last failed delivery.
	// +optional
	LastError string `json:"lastError,omitempty"`
	// Time of the last failed delivery.
	// +optional
	LastFailedAt *metav1.Time `json:"lastFailedAt,omitempty"`
	// Sequence numbers of records that the sink rejected or that expired. The last
	// 16 are listed.
	// +listType=atomic
	// +optional
	Rejected []int64 `json:"rejected,omitempty"`
	// Number of records dropped because too many were waiting.
	// +optional
	Dropped int64 `json:"dropped,omitempty"`
}
