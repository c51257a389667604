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

// NodeFaultStatus is the progress of the repair of a node.
type NodeFaultStatus struct {
	// UID of the Node object. A new node with the same name has another UID, and starts a
	// new repair.
	// +optional
	NodeUID types.UID `json:"nodeUID,omitempty"`

	// ID of the current repair session. A session lasts from the first fault that requires
	// an action until the node returns to service.
	// +optional
	Session string `json:"session,omitempty"`

	// Current step of the repair: Observed (no action is required), Pending (a limit
	// blocks the quarantine), DryRun (actions are only reported), Quarantined (cordoned),
	// Draining, Remediating (reboot or termination runs), Recovering (no fault is left),
	// Held (an annotation keeps the node out of service), Overridden (a person uncordoned
	// the node), Stuck (a person must repair the node), Healthy or Gone (the node was
	// deleted).
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Time at which the phase last changed.
	// +optional
	PhaseChangedAt *metav1.Time `json:"phaseChangedAt,omitempty"`

	// Why the node is in this phase: what the controller waits for, and what a person can
	// do.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

	// Error codes of the fault that started the session, or the name of its check if it
	// has no error codes.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	FaultCode string `json:"faultCode,omitempty"`

	// Copy of the fault that started the session.
	// +optional
	TriggeredBy *Fault `json:"triggeredBy,omitempty"`

	// Actions that the rules require for the active faults, as of the last evaluation.
	// +optional
	DesiredActions *DesiredActions `json:"desiredActions,omitempty"`

	// Changes that node-fault-controller made to the node and has not reverted yet.
	// +optional
	Owned *Owned `json:"owned,omitempty"`

	// Progress of the drain of the node.
	// +optional
	Drain *DrainStatus `json:"drain,omitempty"`

	// Progress of the current or last reboot or termination, or of the request to support.
	// +optional
	Remediation *RemediationStatus `json:"remediation,omitempty"`

	// Time since which no fault requires an action. The node returns to service after it
	// has been healthy for the configured time.
	// +optional
	HealthySince *metav1.Time `json:"healthySince,omitempty"`

	// Set if a person uncordoned the node during the repair. Meanwhile the controller does
	// not cordon the node again. This state ends with a new fault, with the removal of the
	// annotation fleetloop.io/node-fault-overridden from the node, or after the time in
	// quarantine.override_ttl.
	// +optional
	Overridden *Overridden `json:"overridden,omitempty"`

	// Conditions of the node: Quarantined, Drained, Remediated, Overridden (a person
	// uncordoned the node) and BudgetDenied (too many nodes are out of service).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Value of metadata.generation of the spec that the controller last processed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Past actions on the node, oldest first. The controller keeps the last 32 records. It
	// also keeps older records that at least one sink has not received yet, up to 64 records
	// in total. A sink is an HTTP endpoint that receives change events.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	History []Record `json:"history,omitempty"`

	// Sequence number of the newest record in history.
	// +optional
	LastSequence int64 `json:"lastSequence,omitempty"`

	// Delivery state of this node's change events, by sink name.
	// +optional
	SinkDeliveries map[string]DeliveryStatus `json:"sinkDeliveries,omitempty"`

	// Number of change events that wait for delivery to at least one sink.
	// +optional
	UndeliveredChangeEvents int32 `json:"undeliveredChangeEvents,omitempty"`

	// Last value of the annotation fleetloop.io/resend-change-events that the controller
	// processed. A new value of the annotation makes the controller send rejected records
	// again.
	// +optional
	LastResendRequest string `json:"lastResendRequest,omitempty"`

	// Number of records that the controller removed from history before every sink had
	// received them.
	// +optional
	Dropped int64 `json:"dropped,omitempty"`
}

// DesiredActions are the actions that the rules require for a node.
type DesiredActions struct {
	// Names of the rules that matched the active faults.
	// +listType=atomic
	// +optional
	MatchedRules []string `json:"matchedRules,omitempty"`
	// True if the rules require to cordon the node.
	// +optional
	Cordon bool `json:"cordon,omitempty"`
	// True if the rules require to drain the node.
	// +optional
	Drain bool `json:"drain,omitempty"`
	// Taints that the rules require on the node.
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Remedies that the controller tries in this order: reboot, terminate, or support (a
	// person repairs the node).
	// +listType=atomic
	// +optional
	Remedies []Remedy `json:"remedies,omitempty"`
	// True if the controller only reports these actions and does not perform them.
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

// Owned lists the changes that the controller made to a node. The annotation
// fleetloop.io/node-fault-owned of the node is authoritative.
type Owned struct {
	// ID of the repair session in which the controller made the changes.
	Session string `json:"session"`
	// True if the controller cordoned the node. False if the node was cordoned before; the
	// controller then does not uncordon it.
	Cordon bool `json:"cordon"`
	// Taints that the controller added to the node.
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Time at which the controller cordoned the node or added the taints.
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
	// State of the drain: Running, Completed, Failed (the deadline passed) or Cancelled.
	State DrainState `json:"state"`
	// Time at which the drain started.
	StartedAt metav1.Time `json:"startedAt"`
	// Time at which the drain fails if pods are left on the node.
	Deadline metav1.Time `json:"deadline"`
	// Time at which the drain ended. Unset while it runs.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Number of pods that must still leave the node.
	Remaining int32 `json:"remaining"`
	// Number of the remaining pods that are already terminating.
	Terminating int32 `json:"terminating,omitempty"`
	// Number of evictions that the API server accepted.
	Evicted int32 `json:"evicted,omitempty"`
	// Pods that the controller cannot evict yet, with the cause. At most eight are listed.
	// +listType=atomic
	// +optional
	BlockedPods []BlockedPod `json:"blockedPods,omitempty"`
	// Summary of the progress of the drain.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// BlockedPod is a pod that the controller cannot evict yet.
type BlockedPod struct {
	// Namespace and name of the pod, as namespace/name.
	Pod string `json:"pod"`
	// What blocks the eviction: the PodDisruptionBudget as namespace/name, or one of
	// terminating, bare-pod (no controller would create the pod again), empty-dir (the pod
	// would lose local data), waiting, disruption-budget, namespace-terminating, rejected
	// and api-error.
	BlockedBy string `json:"blockedBy"`
	// Details, such as the response of the API server.
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

// RemediationStatus is the progress of one attempt to repair the node.
type RemediationStatus struct {
	// State of the current attempt: Running, Succeeded, Failed (the next attempt follows)
	// or Exhausted (no remedy is left).
	State RemedyState `json:"state"`
	// Remedy of the current attempt: reboot, terminate or support.
	Action Remedy `json:"action"`
	// Position of the remedy in desiredActions.remedies, starting at 0.
	RemedyIndex int32 `json:"remedyIndex"`
	// Number of the attempt in this session, starting at 1.
	Attempt int32 `json:"attempt"`
	// Time at which the attempt started.
	StartedAt metav1.Time `json:"startedAt"`
	// Time at which the attempt fails if it has not succeeded.
	Deadline metav1.Time `json:"deadline"`
	// Time at which the attempt ended. Unset while it runs.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Kind of the object that performs the attempt: RebootNode, TerminateNode, or Job for
	// the verification of the repair.
	// +optional
	ObjectKind string `json:"objectKind,omitempty"`
	// Name of the object that performs the repair attempt, for example of a RebootNode or
	// TerminateNode.
	// +optional
	ObjectName string `json:"objectName,omitempty"`
	// Boot ID of the node before the reboot. The reboot succeeded when the node reports
	// another boot ID.
	// +optional
	PreviousBootID string `json:"previousBootID,omitempty"`
	// Progress of the attempt, or why it failed.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// Overridden records that a person uncordoned the node during a repair.
type Overridden struct {
	// ID of the repair session that the person interrupted.
	Session string `json:"session"`
	// Time at which the controller noticed that a person had uncordoned the node.
	DetectedAt metav1.Time `json:"detectedAt"`
	// Active faults at that time, as source/check/entity. The controller ignores these
	// faults; a new fault starts the repair again.
	// +listType=atomic
	// +optional
	Faults []string `json:"faults,omitempty"`
}

// Record is one past action on the node. The controller sends a change event for each
// record.
type Record struct {
	// Number of the record. It increases by 1 with each record of the NodeFault.
	Sequence int64 `json:"sequence"`
	// ID of the change event that the controller sends for the record.
	ID string `json:"id"`
	// Action on the node, such as cordon or drain-started.
	Action string `json:"action"`
	// Name of the component that performed the action.
	Source string `json:"source"`
	// Time at which the component performed the action.
	At metav1.MicroTime `json:"at"`
	// ID of the repair session.
	Session string `json:"session,omitempty"`
	// Result of the action: succeeded or failed.
	// +optional
	Outcome string `json:"outcome,omitempty"`
	// Why the component performed the action, or why the action failed.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Reason string `json:"reason,omitempty"`
	// Name of the health check that reported the fault with which the repair session began.
	// A repair session lasts until the node is back in service.
	// +optional
	Check string `json:"check,omitempty"`
	// Error codes of the fault with which the repair session of the node began.
	// +listType=atomic
	// +optional
	ErrorCodes []string `json:"errorCodes,omitempty"`
	// Name of the agent that reported the fault that started the session.
	// +optional
	Agent string `json:"agent,omitempty"`
	// True if the fault that started the session prevents the node from running workloads.
	// +optional
	Fatal bool `json:"fatal,omitempty"`
	// Description of the fault with which the repair session of the node began.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
	// True if the component only reported the action and did not perform it.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// Object that performed the action, such as rebootnodes/gpu-node-01-k3f9c2-1.
	// +optional
	Object string `json:"object,omitempty"`
}

// DeliveryStatus is the progress of the delivery of change events to one sink.
type DeliveryStatus struct {
	// Sequence number of the last record that the controller has finished for the sink. It
	// has delivered, dropped or skipped this record and all earlier ones, or the sink
	// rejected them.
	ProcessedSequence int64 `json:"processedSequence"`
	// Time from which the sink receives records. The controller skips older records.
	// +optional
	EnabledAt *metav1.Time `json:"enabledAt,omitempty"`
	// Time at which the sink last accepted a record.
	// +optional
	LastDeliveredAt *metav1.Time `json:"lastDeliveredAt,omitempty"`
	// Error of the last failed delivery.
	// +optional
	LastError string `json:"lastError,omitempty"`
	// Time of the last failed delivery.
	// +optional
	LastFailedAt *metav1.Time `json:"lastFailedAt,omitempty"`
	// Sequence numbers of records that the sink rejected or that expired before delivery.
	// The last 16 are listed.
	// +listType=atomic
	// +optional
	Rejected []int64 `json:"rejected,omitempty"`
	// Number of records that the controller dropped because too many were waiting for this
	// sink.
	// +optional
	Dropped int64 `json:"dropped,omitempty"`
}
