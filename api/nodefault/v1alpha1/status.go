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

// PoolBudget is how many nodes of a pool may be out of service.
type PoolBudget struct {
	// Value of the node label in the setting budget.pool_label. Empty for the nodes without
	// the label, or if there is one pool.
	// +optional
	Pool string `json:"pool,omitempty"`

	// Maximum number of nodes of the pool that may be out of service. Nodes that others
	// cordoned and nodes that are not ready count too.
	Limit int32 `json:"limit"`
}

// NodeFaultStatus is the progress of the repair of a node.
type NodeFaultStatus struct {
	// UID of the Node object that this status describes. It distinguishes the node from a
	// later node with the same name.
	// +optional
	NodeUID types.UID `json:"nodeUID,omitempty"`

	// ID of the current repair session, or of the last one if the node is back in service.
	// A repair session lasts from the first fault that requires an action until the node
	// returns to service.
	// +optional
	Session string `json:"session,omitempty"`

	// Current step of the repair: Observed (no action is required), Pending (a limit or
	// the API server prevents the cordon), DryRun (actions are only reported), Quarantined
	// (cordoned), Draining, Remediating (a reboot or termination is in progress),
	// Recovering (no fault is left), Held (an annotation keeps the healthy node out of
	// service), Overridden (a person uncordoned the node), Stuck (a person must repair the
	// node), Healthy (in service) or Gone (the node was deleted).
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

	// Error codes of the fault that started the current repair, separated by commas, or
	// the name of the failed health check if the fault has no error codes. Empty if no
	// repair is in progress.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	FaultCode string `json:"faultCode,omitempty"`

	// Copy of the fault that started the current repair of the node. Unset if no repair is
	// in progress.
	// +optional
	TriggeredBy *Fault `json:"triggeredBy,omitempty"`

	// Actions that the rules of node-fault-controller require because of the active faults
	// of the node. Unset if they require none.
	// +optional
	DesiredActions *DesiredActions `json:"desiredActions,omitempty"`

	// Pool of the node, and how many nodes of the pool may be out of service. Unset unless
	// the node is out of service or waits for the budget.
	// +optional
	Budget *PoolBudget `json:"budget,omitempty"`

	// Cordon and taints that node-fault-controller added to the node and has not removed
	// yet. Unset if there are none.
	// +optional
	Owned *Owned `json:"owned,omitempty"`

	// Drain of the node in the current or last repair: its state, its deadline, and the
	// pods that are left or block it. Unset if no drain was started.
	// +optional
	Drain *DrainStatus `json:"drain,omitempty"`

	// Progress of the current or last attempt to repair the node. An attempt is a reboot, a
	// termination, or a request that a person repairs the node. Unset if there was no
	// attempt.
	// +optional
	Remediation *RemediationStatus `json:"remediation,omitempty"`

	// Time at which the node became healthy, which means that no fault requires an action.
	// Unset if the node is not healthy or is already in service. The node returns to
	// service after it has been healthy for the time in the setting
	// quarantine.healthy_for.
	// +optional
	HealthySince *metav1.Time `json:"healthySince,omitempty"`

	// Set if a person uncordoned the node during the repair. While it is set,
	// node-fault-controller does not cordon the node again. It is unset when a new fault
	// appears, no fault is left, the annotation fleetloop.io/node-fault-overridden is
	// removed from the node, or the time in the setting quarantine.override_ttl has
	// passed.
	// +optional
	Overridden *Overridden `json:"overridden,omitempty"`

	// Conditions of the node: Quarantined (node-fault-controller cordoned or tainted the
	// node), Drained (the drain completed), Remediated (the last repair attempt
	// succeeded), Overridden (a person uncordoned the node) and BudgetDenied (the node is
	// not cordoned, because too many nodes are out of service). A condition is absent
	// until it is true for the first time.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Generation of this NodeFault (metadata.generation) that node-fault-controller last
	// processed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Past actions on the node, oldest first. The controller keeps the last 32 records. It
	// also keeps older records until every sink has received them, up to 64 records in
	// total. A sink is an HTTP endpoint that receives change events.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	History []Record `json:"history,omitempty"`

	// Sequence number of the newest record in status.history.
	// +optional
	LastSequence int64 `json:"lastSequence,omitempty"`

	// Progress of the delivery of this node's change events, by sink name. A change event
	// is a message about an action on the node. A sink is an HTTP endpoint that receives
	// change events.
	// +optional
	SinkDeliveries map[string]DeliveryStatus `json:"sinkDeliveries,omitempty"`

	// Number of change events (messages about actions on this node) that are still waiting
	// for delivery to at least one sink. A sink is an HTTP endpoint that receives change
	// events.
	// +optional
	UndeliveredChangeEvents int32 `json:"undeliveredChangeEvents,omitempty"`

	// Value of the annotation fleetloop.io/resend-change-events that node-fault-controller
	// processed last. To send again the change events that a sink (an HTTP endpoint)
	// rejected, set this annotation of the NodeFault to a new value.
	// +optional
	LastResendRequest string `json:"lastResendRequest,omitempty"`

	// Number of records that node-fault-controller removed from status.history before every
	// sink had received them. It removes the oldest records if the history exceeds 64
	// records. A sink is an HTTP endpoint that receives each record as a change event.
	// +optional
	Dropped int64 `json:"dropped,omitempty"`
}

// DesiredActions are the actions that the rules require for a node.
type DesiredActions struct {
	// Names of the rules that match the active faults. The entry "(source)" is not a rule:
	// it means that the report of an agent forced a cordon or a drain.
	// +listType=atomic
	// +optional
	MatchedRules []string `json:"matchedRules,omitempty"`
	// True if the rules require that the node is cordoned.
	// +optional
	Cordon bool `json:"cordon,omitempty"`
	// True if the rules require that the node is drained.
	// +optional
	Drain bool `json:"drain,omitempty"`
	// Taints that the rules require on the node. Empty if they require none.
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Repair steps that node-fault-controller tries one after the other, in the order of
	// this list. Each is reboot, terminate or support (a person repairs the node).
	// +listType=atomic
	// +optional
	Remedies []Remedy `json:"remedies,omitempty"`
	// True if node-fault-controller only reports these actions and does not perform them.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
}

// Remedy is one repair step: reboot, terminate or support (a person repairs the node).
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
	// ID of the repair session (status.session) in which node-fault-controller made the
	// changes.
	Session string `json:"session"`
	// True if node-fault-controller cordoned the node and will uncordon it after the
	// repair. False if it did not cordon the node, for example because another client had
	// already cordoned it.
	Cordon bool `json:"cordon"`
	// Taints that node-fault-controller added to the node and must remove after the
	// repair.
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Time at which node-fault-controller cordoned the node or added the taints.
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
	// State of the drain: Running, Completed, Failed (pods were left at the deadline) or
	// Cancelled (no longer needed, or stopped by a person).
	State DrainState `json:"state"`
	// Time at which the drain started.
	StartedAt metav1.Time `json:"startedAt"`
	// Time at which the drain fails if pods are left on the node.
	Deadline metav1.Time `json:"deadline"`
	// Time at which the drain ended. Unset while the drain is running.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Number of pods that must still leave the node.
	Remaining int32 `json:"remaining"`
	// Number of the remaining pods that are already terminating.
	Terminating int32 `json:"terminating,omitempty"`
	// Number of pods that node-fault-controller evicted or deleted in this drain. Pods
	// that are still terminating count, too.
	Evicted int32 `json:"evicted,omitempty"`
	// Pods that block the drain, each with the cause. At most 8 are listed.
	// +listType=atomic
	// +optional
	BlockedPods []BlockedPod `json:"blockedPods,omitempty"`
	// Progress of the drain in words, or how it ended.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// BlockedPod is a pod that blocks the drain of a node, with the cause.
type BlockedPod struct {
	// Namespace and name of the pod, as namespace/name.
	Pod string `json:"pod"`
	// What blocks the pod. If it is a PodDisruptionBudget, its namespace/name is given, or
	// disruption-budget if the name is unknown. Other values: terminating (the pod still
	// runs after its grace period), waiting (the drain settings of the namespace delay the
	// eviction), bare-pod (no controller would create the pod again), empty-dir (data in
	// an emptyDir volume would be lost), namespace-terminating (the namespace is being
	// deleted), rejected (the API server rejects the eviction) and api-error (the API
	// server gave no usable response).
	BlockedBy string `json:"blockedBy"`
	// Details of the cause, such as the error of the API server.
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
	// State of the attempt: Running, Succeeded, Failed (node-fault-controller tries again
	// or tries the next action) or Exhausted (automatic repair has ended, and a person
	// must repair the node).
	State RemedyState `json:"state"`
	// Action of the attempt: reboot, terminate or support (a person must repair the node).
	Action Remedy `json:"action"`
	// Position of this action in the list status.desiredActions.remedies, starting at 0.
	RemedyIndex int32 `json:"remedyIndex"`
	// Number of the attempt in this repair of the node, starting at 1. Reboots and
	// terminations are counted together. 0 if neither was attempted.
	Attempt int32 `json:"attempt"`
	// Time at which the attempt started.
	StartedAt metav1.Time `json:"startedAt"`
	// Time at which the attempt fails if it has not succeeded.
	Deadline metav1.Time `json:"deadline"`
	// Time at which the attempt ended. Unset while the attempt is running.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Kind of the Kubernetes object for the attempt: RebootNode, TerminateNode, or Job
	// (tests the node after a reboot). Empty for an attempt without such an object.
	// +optional
	ObjectKind string `json:"objectKind,omitempty"`
	// Name of the RebootNode, TerminateNode or Job for the attempt. Empty for an attempt
	// without such an object.
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
	// ID of the repair session that ended because a person uncordoned the node.
	Session string `json:"session"`
	// Time at which node-fault-controller noticed that a person had uncordoned the node.
	DetectedAt metav1.Time `json:"detectedAt"`
	// Faults that were active when a person uncordoned the node, as source/check/entity.
	// node-fault-controller ignores these faults. Any other fault starts the repair again.
	// +listType=atomic
	// +optional
	Faults []string `json:"faults,omitempty"`
}

// Record is one past action on the node. node-fault-controller sends each record as a
// change event to the configured HTTP endpoints.
type Record struct {
	// Number of the record. It increases by 1 with each record of the NodeFault.
	Sequence int64 `json:"sequence"`
	// ID of the change event (the message about this action) that node-fault-controller
	// sends to HTTP endpoints. A message that is sent again has the same ID.
	ID string `json:"id"`
	// Action on the node, such as cordon or drain-started.
	Action string `json:"action"`
	// Name of the component that performed the action, such as nvsentinel/node-drainer.
	Source string `json:"source"`
	// Time of the action.
	At metav1.MicroTime `json:"at"`
	// ID of the repair session to which the action belongs. A repair session lasts from
	// the first fault that requires an action until the node returns to service.
	Session string `json:"session,omitempty"`
	// Result of the action: succeeded or failed.
	// +optional
	Outcome string `json:"outcome,omitempty"`
	// Why the action was performed, or why it failed.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Reason string `json:"reason,omitempty"`
	// Name of the failed health check that started this repair of the node.
	// +optional
	Check string `json:"check,omitempty"`
	// Error codes of the fault that started this repair of the node.
	// +listType=atomic
	// +optional
	ErrorCodes []string `json:"errorCodes,omitempty"`
	// Name of the agent, such as a health monitor, that reported the fault and so started
	// this repair of the node.
	// +optional
	Agent string `json:"agent,omitempty"`
	// True if the fault that started this repair prevents the node from running workloads.
	// +optional
	Fatal bool `json:"fatal,omitempty"`
	// Description of the fault that started this repair of the node.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
	// True if the action was only reported (dry run) and not performed.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// Kubernetes object for the reboot or termination, as resource/name, such as
	// rebootnodes/gpu-node-01-k3f9c2-1. Empty for other actions.
	// +optional
	Object string `json:"object,omitempty"`
}

// DeliveryStatus is the progress of the delivery of change events to one sink, which is an
// HTTP endpoint.
type DeliveryStatus struct {
	// Sequence number of the newest record in status.history whose delivery to this sink
	// has ended. The delivery of all earlier records has ended, too. It ends when the sink
	// accepts or rejects the record, or when node-fault-controller drops or skips it.
	ProcessedSequence int64 `json:"processedSequence"`
	// Time from which the sink receives records. Older records are not sent to it.
	// +optional
	EnabledAt *metav1.Time `json:"enabledAt,omitempty"`
	// Time at which the sink last accepted a record.
	// +optional
	LastDeliveredAt *metav1.Time `json:"lastDeliveredAt,omitempty"`
	// Kind of error of the last failed delivery to the sink, such as timeout or
	// unauthorized. Empty if a later delivery succeeded.
	// +optional
	LastError string `json:"lastError,omitempty"`
	// Time of the last failed delivery to the sink. Unset if a later delivery succeeded.
	// +optional
	LastFailedAt *metav1.Time `json:"lastFailedAt,omitempty"`
	// Sequence numbers of the last 16 records that the sink rejected or that expired
	// before they could be delivered.
	// +listType=atomic
	// +optional
	Rejected []int64 `json:"rejected,omitempty"`
	// Number of records that node-fault-controller removed from status.history before this
	// sink received them, because too many were waiting.
	// +optional
	Dropped int64 `json:"dropped,omitempty"`
}
