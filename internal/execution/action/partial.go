package action

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The types and values of k8s.io/api that actions use. The packages of k8s.io/api register all of
// their types, which would be a tenth of action-runner.

const (
	protocolTCP       = "TCP"
	policyTypeIngress = "Ingress"
	policyTypeEgress  = "Egress"
	podRunning        = "Running"
	podSucceeded      = "Succeeded"
)

// A partialPod holds the fields of a Pod that actions read.
type partialPod struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		NodeName string          `json:"nodeName"`
		Volumes  []partialVolume `json:"volumes"`
	} `json:"spec"`

	Status partialPodStatus `json:"status"`
}

type partialVolume struct {
	Name     string    `json:"name"`
	EmptyDir *struct{} `json:"emptyDir"`
}

type partialPodStatus struct {
	Phase                 string                   `json:"phase"`
	Reason                string                   `json:"reason"`
	InitContainerStatuses []partialContainerStatus `json:"initContainerStatuses"`
	ContainerStatuses     []partialContainerStatus `json:"containerStatuses"`
}

type partialContainerStatus struct {
	Name         string `json:"name"`
	Ready        bool   `json:"ready"`
	RestartCount int32  `json:"restartCount"`

	State struct {
		Running *struct{} `json:"running"`
		Waiting *struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"waiting"`
		Terminated *struct {
			ExitCode int32  `json:"exitCode"`
			Reason   string `json:"reason"`
		} `json:"terminated"`
	} `json:"state"`
}

// A partialEvent holds the fields of an Event that actions read.
type partialEvent struct {
	metav1.ObjectMeta `json:"metadata"`

	InvolvedObject struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"involvedObject"`

	Type          string           `json:"type"`
	Reason        string           `json:"reason"`
	Message       string           `json:"message"`
	LastTimestamp metav1.Time      `json:"lastTimestamp"`
	EventTime     metav1.MicroTime `json:"eventTime"`
}

// A networkPolicySpec is the spec of a NetworkPolicy.
type networkPolicySpec struct {
	PodSelector metav1.LabelSelector `json:"podSelector"`
	Ingress     []ingressRule        `json:"ingress,omitempty"`
	Egress      []egressRule         `json:"egress,omitempty"`
	PolicyTypes []string             `json:"policyTypes,omitempty"`
}

type ingressRule struct {
	Ports []policyPort `json:"ports,omitempty"`
	From  []policyPeer `json:"from,omitempty"`
}

type egressRule struct {
	Ports []policyPort `json:"ports,omitempty"`
	To    []policyPeer `json:"to,omitempty"`
}

type policyPort struct {
	Protocol *string             `json:"protocol,omitempty"`
	Port     *intstr.IntOrString `json:"port,omitempty"`
	EndPort  *int32              `json:"endPort,omitempty"`
}

type policyPeer struct {
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	IPBlock           *ipBlock              `json:"ipBlock,omitempty"`
}

type ipBlock struct {
	CIDR   string   `json:"cidr"`
	Except []string `json:"except,omitempty"`
}
