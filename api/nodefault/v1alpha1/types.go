package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeFault records the faults of one node and the progress of its repair. It has the same
// name as the Node object. After the node is deleted, node-fault-controller keeps the
// NodeFault at least until all change events (messages about actions on the node) are
// delivered or have expired.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodefaults,singular=nodefault,shortName=nf,scope=Cluster
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Fault",type=string,JSONPath=`.status.faultCode`
// +kubebuilder:printcolumn:name="Remedy",type=string,JSONPath=`.status.remediation.action`
// +kubebuilder:printcolumn:name="Attempt",type=integer,JSONPath=`.status.remediation.attempt`
// +kubebuilder:printcolumn:name="Pods Left",type=integer,JSONPath=`.status.drain.remaining`
// +kubebuilder:printcolumn:name="Phase Age",type=date,JSONPath=`.status.phaseChangedAt`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Session",type=string,priority=1,JSONPath=`.status.session`
// +kubebuilder:printcolumn:name="Undelivered Events",type=integer,priority=1,JSONPath=`.status.undeliveredChangeEvents`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
type NodeFault struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Faults of the node. Each source, such as a health monitor, writes its own entries.
	// +optional
	Spec NodeFaultSpec `json:"spec,omitempty"`

	// Progress of the repair of the node. Only node-fault-controller writes the status.
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

// NodeFaultSpec lists the faults of a node.
type NodeFaultSpec struct {
	// Faults that are currently active. The entry of a fault is removed when its source
	// reports that the fault is over. Each entry has its own field manager, so that
	// sources do not overwrite each other.
	// +listType=map
	// +listMapKey=source
	// +listMapKey=check
	// +listMapKey=entity
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Faults []Fault `json:"faults,omitempty"`

	// Ends of the faults that ended last. A report that its source generated before the
	// end of the fault is rejected, so that a delayed report does not bring the fault back.
	// +listType=map
	// +listMapKey=source
	// +listMapKey=check
	// +listMapKey=entity
	// +kubebuilder:validation:MaxItems=64
	// +optional
	EndedFaults []EndedFault `json:"endedFaults,omitempty"`
}

// EndedFault is the end of a fault.
type EndedFault struct {
	// Name of the agent that reported the fault.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Source string `json:"source"`

	// Name of the health check that failed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Check string `json:"check"`

	// Affected part of the node. Empty means the whole node.
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=256
	Entity string `json:"entity"`

	// Time at which the agent generated the report that the fault is over.
	GeneratedAt metav1.MicroTime `json:"generatedAt"`
}

// Fault is one problem of a node, reported by an agent such as a health monitor.
type Fault struct {
	// Name of the agent that reported the fault, such as syslog-health-monitor.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Source string `json:"source"`

	// Name of the health check that failed, such as xid-check or KernelDeadlock.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Check string `json:"check"`

	// Affected part of the node, such as GPU/3, or several parts separated by commas.
	// Empty means the whole node.
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=256
	Entity string `json:"entity"`

	// Class of the affected hardware, such as GPU or NIC.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ComponentClass string `json:"componentClass,omitempty"`

	// Error codes of the fault, such as XID-79. The rules in the configuration of
	// node-fault-controller can match them.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	ErrorCodes []string `json:"errorCodes,omitempty"`

	// True if the node cannot run workloads because of the fault.
	// +optional
	Fatal bool `json:"fatal,omitempty"`

	// Description of the fault, from the agent (such as a health monitor) that reported
	// it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

	// Action that the reporting agent, for example a health monitor, recommends, such as
	// RESTART_VM. It has an effect only if a rule in the configuration of
	// node-fault-controller matches it.
	// +optional
	RecommendedAction RecommendedAction `json:"recommendedAction,omitempty"`

	// If true, node-fault-controller only records the fault: this fault causes no action.
	// Defaults to false.
	// +optional
	ObserveOnly bool `json:"observeOnly,omitempty"`

	// Override of the rules of node-fault-controller for this fault. force: the node is
	// cordoned even if no rule matches. skip: the fault causes no action. Empty: the rules
	// decide.
	// +optional
	QuarantineOverride Override `json:"quarantineOverride,omitempty"`

	// Override of the rules of node-fault-controller for this fault. force: the node is
	// cordoned and drained even if no rule matches. skip: the fault causes no drain.
	// Empty: the rules decide.
	// +optional
	DrainOverride Override `json:"drainOverride,omitempty"`

	// Time at which the reporting agent, such as a health monitor, detected the fault.
	DetectedAt metav1.MicroTime `json:"detectedAt"`

	// Time at which the agent generated its last report about the fault. While reports do
	// not change the fault, the time can be up to ten seconds older. Empty if the agent
	// does not say the time; then its reports are ordered by their arrival.
	// +optional
	GeneratedAt *metav1.MicroTime `json:"generatedAt,omitempty"`
}

// RecommendedAction is the action that a source recommends.
//
// +kubebuilder:validation:MaxLength=64
type RecommendedAction string

// Well-known actions. A source may recommend others, and rules can match them.
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
