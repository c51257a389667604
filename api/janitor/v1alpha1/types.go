package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// GroupVersion is the group and version of RebootNode and TerminateNode.
var GroupVersion = schema.GroupVersion{Group: "janitor.dgxc.nvidia.com", Version: "v1alpha1"}

// The kinds, and their names in URLs.
const (
	KindReboot        = "RebootNode"
	ResourceReboot    = "rebootnodes"
	KindTerminate     = "TerminateNode"
	ResourceTerminate = "terminatenodes"
)

// AddToScheme makes the types of this package known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &RebootNode{}, &RebootNodeList{}, &TerminateNode{}, &TerminateNodeList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// The conditions of both, and the reasons that end them.
const (
	// ConditionSignalSent is True when the provider has accepted the request.
	ConditionSignalSent = "SignalSent"
	// ConditionNodeReady is True when the node runs again, proven by another
	// boot id.
	ConditionNodeReady = "NodeReady"
	// ConditionNodeTerminated is True when the machine and the Node are gone.
	ConditionNodeTerminated = "NodeTerminated"

	ReasonSucceeded = "Succeeded"
	ReasonFailed    = "Failed"  // the provider refused, for good
	ReasonTimeout   = "Timeout" // the deadline has passed
	ReasonWaiting   = "Waiting"
)

// RebootNode requests one reboot of one node. The janitor, the controller that reboots
// and terminates nodes, performs it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=rebootnodes,singular=rebootnode,scope=Cluster
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Sent",type=string,JSONPath=`.status.conditions[?(@.type=="SignalSent")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="NodeReady")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
type RebootNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Name of the node to reboot, and whether the reboot may start while Pods still run on
	// the node. Immutable.
	Spec NodeActionSpec `json:"spec"`
	// Progress of the reboot. Only the janitor, the controller that reboots and terminates
	// nodes, writes the status.
	// +optional
	Status NodeActionStatus `json:"status,omitempty"`
}

// RebootNodeList is a list of RebootNodes.
//
// +kubebuilder:object:root=true
type RebootNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RebootNode `json:"items"`
}

// TerminateNode requests the termination of one node and its machine. The janitor, the
// controller that reboots and terminates nodes, performs it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=terminatenodes,singular=terminatenode,scope=Cluster
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Sent",type=string,JSONPath=`.status.conditions[?(@.type=="SignalSent")].status`
// +kubebuilder:printcolumn:name="Terminated",type=string,JSONPath=`.status.conditions[?(@.type=="NodeTerminated")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
type TerminateNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Name of the node to terminate, and whether the termination may start while Pods still
	// run on the node. Immutable.
	Spec NodeActionSpec `json:"spec"`
	// Progress of the termination. Only the janitor, the controller that reboots and
	// terminates nodes, writes the status.
	// +optional
	Status NodeActionStatus `json:"status,omitempty"`
}

// TerminateNodeList is a list of TerminateNodes.
//
// +kubebuilder:object:root=true
type TerminateNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TerminateNode `json:"items"`
}

// NodeActionSpec selects the node.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable: create another object"
type NodeActionSpec struct {
	// Name of the Node to reboot (RebootNode) or terminate (TerminateNode).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`

	// If true, the operation starts even if Pods still run on the node. If false (the
	// default), it starts only after the node is drained; static Pods and Pods of DaemonSets
	// may stay. force does not select a hard reset. If status.provider is webhook, the
	// webhook receives the value.
	// +optional
	Force bool `json:"force,omitempty"`
}

// NodeActionStatus is the progress of a reboot or termination.
type NodeActionStatus struct {
	// Time at which the janitor, the controller that reboots and terminates nodes, started
	// to process this object. Unset while it waits for an earlier operation on the node.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// Time at which the operation succeeded or failed. Unset until then.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// Conditions of the operation: SignalSent (the system named in status.provider accepted
	// the request), NodeReady (only for a RebootNode: the node has rebooted and is Ready)
	// and NodeTerminated (only for a TerminateNode: the machine and its Node no longer
	// exist).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// UID that the Node had at status.startTime. The reboot or termination applies only to
	// the Node with this UID, not to a later Node with the same name.
	// +optional
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// Boot ID of the node before the operation, as in status.nodeInfo.bootID of the Node. A
	// RebootNode succeeds only after the node reports another boot ID. For a TerminateNode,
	// the boot ID is not compared.
	// +optional
	PreviousBootID string `json:"previousBootID,omitempty"`

	// System that performs the operation on the machine: job (a Job on the node), webhook
	// (an HTTP endpoint), machine (Cluster API), execution (a KubernetesExecution), manual
	// (a person) or none (no system is configured, so every request fails).
	// +optional
	Provider string `json:"provider,omitempty"`
	// ID of the request in the system in status.provider, for example the name of a Job.
	// Empty until that system has accepted the request.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	ProviderRequestID string `json:"providerRequestID,omitempty"`

	// Time at which the operation fails unless it has succeeded by then. Unset until the
	// operation starts.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`

	// Progress of the operation: what it waits for, or why it failed.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}
