package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Phase is where a node stands.
//
// +kubebuilder:validation:Enum=Observed;Pending;DryRun;Quarantined;Draining;Remediating;Recovering;Held;Overridden;Stuck;Healthy;Gone
type Phase string

// The phases. The table of transitions is in docs/states/node-fault.md.
const (
	// PhaseObserved is that no rule wants anything done, or not yet.
	PhaseObserved Phase = "Observed"
	// PhasePending is that something keeps us from beginning: Message says what.
	PhasePending Phase = "Pending"
	// PhaseDryRun is that what would be done is told, and not done.
	PhaseDryRun Phase = "DryRun"
	// PhaseQuarantined is that the node is cordoned and nothing else to be done.
	PhaseQuarantined Phase = "Quarantined"
	// PhaseDraining is that pods are being evicted, or waited for.
	PhaseDraining Phase = "Draining"
	// PhaseRemediating is that a reboot, a replacement or a person's work is asked for.
	PhaseRemediating Phase = "Remediating"
	// PhaseRecovering is that no fault is left, and that this has to last a while.
	PhaseRecovering Phase = "Recovering"
	// PhaseHeld is that the node would be released, and a person wants it kept.
	PhaseHeld Phase = "Held"
	// PhaseOverridden is that a person has undone our cordon.
	PhaseOverridden Phase = "Overridden"
	// PhaseStuck is that all attempts have failed, or there is nothing to try: a
	// person is needed.
	PhaseStuck Phase = "Stuck"
	// PhaseHealthy is that the session is over and nothing of ours is left.
	PhaseHealthy Phase = "Healthy"
	// PhaseGone is that the node is no more.
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

// NodeFaultStatus is what is done about the faults of a node.
type NodeFaultStatus struct {
	// The node that this is about, which another of the same name is not.
	// +optional
	NodeUID types.UID `json:"nodeUID,omitempty"`

	// What ties together all that is done from the first fault to the release.
	// +optional
	Session string `json:"session,omitempty"`

	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Since when the phase is this.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// What is waited for, what blocks it, and what to do about it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

	// The fault that opened the session, in a word: its code, else its check.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Fault string `json:"fault,omitempty"`

	// The fault that opened the session.
	// +optional
	Opened *Fault `json:"opened,omitempty"`

	// What the rules want, as of the last look.
	// +optional
	Wish *Wish `json:"wish,omitempty"`

	// What is ours on the node.
	// +optional
	Owned *Owned `json:"owned,omitempty"`

	// +optional
	Drain *DrainStatus `json:"drain,omitempty"`

	// +optional
	Remediation *RemediationStatus `json:"remediation,omitempty"`

	// Since when no fault that matters is there.
	// +optional
	HealthySince *metav1.Time `json:"healthySince,omitempty"`

	// What a person has undone. It is remembered until a new fault comes, the
	// annotation is taken from the node, or its time is over.
	// +optional
	Overridden *Overridden `json:"overridden,omitempty"`

	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The generation that this is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// What was done, the oldest first: the last 32, and those that some sink has
	// not taken, 64 at most.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	History []Record `json:"history,omitempty"`

	// The number of the last record.
	// +optional
	Seq int64 `json:"seq,omitempty"`

	// How far each sink of change events has come, by its name.
	// +optional
	Delivered map[string]DeliveryStatus `json:"delivered,omitempty"`

	// How many records wait for a sink.
	// +optional
	Untold int32 `json:"untold,omitempty"`

	// The value of the annotation that had refused records sent again last.
	// +optional
	Resent string `json:"resent,omitempty"`

	// How many records were dropped before each sink had taken them.
	// +optional
	Dropped int64 `json:"dropped,omitempty"`
}

// Wish is what the rules want done.
type Wish struct {
	// The rules that spoke.
	// +listType=atomic
	// +optional
	Rules []string `json:"rules,omitempty"`
	// +optional
	Cordon bool `json:"cordon,omitempty"`
	// +optional
	Drain bool `json:"drain,omitempty"`
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// The remedies to try, in this order; empty is none.
	// +listType=atomic
	// +optional
	Remedies []Remedy `json:"remedies,omitempty"`
	// Whether it is only to be told.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
}

// Remedy is what is done to a node that is cordoned and drained.
//
// +kubebuilder:validation:Enum=reboot;terminate;support
type Remedy string

// The remedies.
const (
	RemedyReboot    Remedy = "reboot"
	RemedyTerminate Remedy = "terminate"
	// RemedySupport is that a person has to look, and is told so.
	RemedySupport Remedy = "support"
)

// Owned is what is ours on a node. The node's annotation says the same, and is
// what counts.
type Owned struct {
	Session string `json:"session"`
	// Whether the cordon is ours. One that was there before never is.
	Cordon bool `json:"cordon"`
	// +listType=atomic
	// +optional
	Taints []corev1.Taint   `json:"taints,omitempty"`
	At     metav1.MicroTime `json:"at"`
}

// DrainState is how far a drain is.
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

// DrainStatus is how far the drain of a session is.
type DrainStatus struct {
	State     DrainState  `json:"state"`
	StartedAt metav1.Time `json:"startedAt"`
	// When it counts as failed.
	Deadline metav1.Time `json:"deadline"`
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Pods that have still to go, those among them that are on their way, and
	// those whose eviction was accepted so far.
	Remaining   int32 `json:"remaining"`
	Terminating int32 `json:"terminating,omitempty"`
	Evicted     int32 `json:"evicted,omitempty"`
	// What keeps pods from going, eight at most.
	// +listType=atomic
	// +optional
	BlockedBy []Blocker `json:"blockedBy,omitempty"`
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// Blocker is what keeps a pod from going.
type Blocker struct {
	// namespace/name
	Pod string `json:"pod"`
	// What stands in the way: a PodDisruptionBudget (namespace/name), or a word
	// such as terminating, bare-pod, empty-dir, waiting.
	By string `json:"by"`
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
}

// RemedyState is how far a remedy is.
//
// +kubebuilder:validation:Enum=Running;Succeeded;Failed;Exhausted
type RemedyState string

// The states of a remedy.
const (
	RemedyRunning   RemedyState = "Running"
	RemedySucceeded RemedyState = "Succeeded"
	RemedyFailed    RemedyState = "Failed" // the next attempt follows
	// RemedyExhausted is that there is nothing left to try.
	RemedyExhausted RemedyState = "Exhausted"
)

// RemediationStatus is how far the remediation of a session is.
type RemediationStatus struct {
	State  RemedyState `json:"state"`
	Action Remedy      `json:"action"`
	// The place of the action in the wish, from 0.
	Step int32 `json:"step"`
	// Counts all attempts of the session, from 1.
	Attempt   int32       `json:"attempt"`
	StartedAt metav1.Time `json:"startedAt"`
	Deadline  metav1.Time `json:"deadline"`
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// The object that carries it out: RebootNode or TerminateNode, and its name.
	// +optional
	Kind string `json:"kind,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
	// The boot id of the node before: another one proves the reboot.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// Overridden is what a person has undone.
type Overridden struct {
	Session string      `json:"session"`
	At      metav1.Time `json:"at"`
	// The faults that were there then, as source/check/entity.
	// +listType=atomic
	// +optional
	Faults []string `json:"faults,omitempty"`
}

// Record is one thing that was done. A change event is made of it.
type Record struct {
	Seq int64 `json:"seq"`
	// The id of the change event.
	ID      string           `json:"id"`
	Action  string           `json:"action"`
	Source  string           `json:"source"`
	At      metav1.MicroTime `json:"at"`
	Session string           `json:"session,omitempty"`
	// succeeded or failed
	// +optional
	Outcome string `json:"outcome,omitempty"`
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Check string `json:"check,omitempty"`
	// +listType=atomic
	// +optional
	ErrorCodes []string `json:"errorCodes,omitempty"`
	// +optional
	Agent string `json:"agent,omitempty"`
	// +optional
	Fatal bool `json:"fatal,omitempty"`
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// What it was done with, such as rebootnodes/gpu-node-01-k3f9c2-1.
	// +optional
	Object string `json:"object,omitempty"`
}

// DeliveryStatus is how far a sink has come.
type DeliveryStatus struct {
	// All records up to this one are settled: taken, refused for good, dropped, or
	// of before the sink was configured.
	Seq int64 `json:"seq"`
	// Since when the sink is told what is done to the node.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// When the sink took one last.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
	// Why it did not take the last one that it did not take, and when.
	// +optional
	Error string `json:"error,omitempty"`
	// +optional
	FailedAt *metav1.Time `json:"failedAt,omitempty"`
	// The records that it refused for good, or that grew too old, the last 16.
	// +listType=atomic
	// +optional
	Refused []int64 `json:"refused,omitempty"`
	// How many records were dropped before the sink had taken them, because too
	// many waited.
	// +optional
	Dropped int64 `json:"dropped,omitempty"`
}
