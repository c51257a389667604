package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeFault is what is known to be wrong with one node, which has the same
// name, and what is done about it. It outlives the node, so that its end is told.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodefaults,singular=nodefault,shortName=nf,scope=Cluster
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Fault",type=string,JSONPath=`.status.fault`
// +kubebuilder:printcolumn:name="Remedy",type=string,JSONPath=`.status.remediation.action`
// +kubebuilder:printcolumn:name="Attempt",type=integer,JSONPath=`.status.remediation.attempt`
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.drain.remaining`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Session",type=string,priority=1,JSONPath=`.status.session`
// +kubebuilder:printcolumn:name="Untold",type=integer,priority=1,JSONPath=`.status.untold`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
type NodeFault struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is wrong. Each source writes its own entries.
	// +optional
	Spec NodeFaultSpec `json:"spec,omitempty"`

	// What is done about it. The controller alone writes it.
	// +optional
	Status NodeFaultStatus `json:"status,omitempty"`
}

// NodeFaultList is a list of NodeFaults.
//
// +kubebuilder:object:root=true
type NodeFaultList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeFault `json:"items"`
}

// NodeFaultSpec is what is wrong with a node.
type NodeFaultSpec struct {
	// The active faults. An entry is taken away when its source says that the
	// node is healthy again. Each is applied under a field manager of its own,
	// so sources neither read nor overwrite each other.
	// +listType=map
	// +listMapKey=source
	// +listMapKey=check
	// +listMapKey=entity
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Faults []Fault `json:"faults,omitempty"`
}

// Fault is one thing that is wrong.
type Fault struct {
	// Who found it: the agent, such as syslog-health-monitor.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Source string `json:"source"`

	// The check that failed, such as xid-check or KernelDeadlock.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Check string `json:"check"`

	// The part of the node that it is about, such as GPU/3, empty for the node.
	// Several are joined with commas.
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=256
	Entity string `json:"entity"`

	// The class of the component, such as GPU or NIC.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ComponentClass string `json:"componentClass,omitempty"`

	// The codes of the error, such as XID-79.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	ErrorCodes []string `json:"errorCodes,omitempty"`

	// Whether the node can do no work with it.
	// +optional
	Fatal bool `json:"fatal,omitempty"`

	// What the source says of it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

	// What the source says should be done.
	// +optional
	Action RecommendedAction `json:"action,omitempty"`

	// Whether the fault is only to be known of, and nothing to be done.
	// +optional
	ObserveOnly bool `json:"observeOnly,omitempty"`

	// Whether the source has the node cordoned, or left alone, whatever the
	// rules say.
	// +optional
	Quarantine Override `json:"quarantine,omitempty"`

	// Whether the source has the node drained, or not, whatever the rules say.
	// +optional
	Drain Override `json:"drain,omitempty"`

	// When it began.
	Since metav1.MicroTime `json:"since"`
}

// RecommendedAction is what a source says should be done.
//
// +kubebuilder:validation:MaxLength=64
type RecommendedAction string

// The actions that sources recommend. A source may have others of its own,
// which rules can speak of.
const (
	ActionNone           RecommendedAction = "NONE"
	ActionComponentReset RecommendedAction = "COMPONENT_RESET"
	ActionContactSupport RecommendedAction = "CONTACT_SUPPORT"
	ActionRunFieldDiag   RecommendedAction = "RUN_FIELDDIAG"
	ActionRestartVM      RecommendedAction = "RESTART_VM"
	ActionRestartBM      RecommendedAction = "RESTART_BM"
	ActionReplaceVM      RecommendedAction = "REPLACE_VM"
	ActionRunDCGMEUD     RecommendedAction = "RUN_DCGMEUD"
	ActionUnknown        RecommendedAction = "UNKNOWN"
)

// Override is force, skip or empty.
//
// +kubebuilder:validation:Enum="";force;skip
type Override string

// The overrides of a source.
const (
	OverrideForce Override = "force"
	OverrideSkip  Override = "skip"
)
