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

// RebootNode requests one reboot of one node.
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

	Spec NodeActionSpec `json:"spec"`
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

// TerminateNode requests the termination of one node and its machine.
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

	Spec NodeActionSpec `json:"spec"`
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
	// Name of the node.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`

	// If true, does not wait until the pods have left the node. Also passed to the
	// provider. It does not select a hard reset.
	// +optional
	Force bool `json:"force,omitempty"`
}

// NodeActionStatus is the progress of the action.
type NodeActionStatus struct {
	// Start of the action.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// End of the action, whether it succeeded or failed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// Conditions: SignalSent, and NodeReady or NodeTerminated.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// UID of the node.
	// +optional
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// Boot ID of the node before the reboot. A new boot ID proves the reboot.
	// +optional
	PreviousBootID string `json:"previousBootID,omitempty"`

	// Provider that performs the action.
	// +optional
	Provider string `json:"provider,omitempty"`
	// ID of the request at the provider.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	ProviderRequestID string `json:"providerRequestID,omitempty"`

	// Time after which the action fails.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`

	// Progress, or the cause of a failure.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}
