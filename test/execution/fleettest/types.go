package fleettest

import (
	_ "embed" // for the file below
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// RemediationCRD is the CustomResourceDefinition of RemediationRequests, in YAML.
//
//go:embed crd.yaml
var RemediationCRD []byte

// RemediationGroupVersion is the group and version of RemediationRequest.
var RemediationGroupVersion = schema.GroupVersion{Group: "remediation.test.fleetloop.io", Version: "v1alpha1"} //nolint:gochecknoglobals // by Kubernetes custom

// RemediationKind is the kind of RemediationRequest, and Resource its name in URLs.
const (
	RemediationKind = "RemediationRequest"
	Resource        = "remediationrequests"
)

// AddRemediationToScheme registers the types of this package with a scheme.
func AddRemediationToScheme(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(RemediationGroupVersion.WithKind(RemediationKind), &RemediationRequest{})
	s.AddKnownTypeWithName(RemediationGroupVersion.WithKind(RemediationKind+"List"), &RemediationRequestList{})
	metav1.AddToGroupVersion(s, RemediationGroupVersion)
	return nil
}

// RemediationRequest is a RemediationRequest, a problem that one action should fix.
type RemediationRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   RemediationSpec   `json:"spec"`
	Status RemediationStatus `json:"status"`
}

// RemediationSpec is the desired remediation.
type RemediationSpec struct {
	Action         string                `json:"action"`
	Parameters     *runtime.RawExtension `json:"parameters,omitempty"`
	PostConditions []v1alpha1.Condition  `json:"postConditions,omitempty"`

	// Timeout limits the whole remediation. The execution is cancelled after it. Nil means no
	// limit.
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Rollback requests a rollback if a required postcondition fails. Executions never roll back
	// without a request.
	Rollback bool `json:"rollback,omitempty"`
}

// RemediationPhase is the progress of a request.
type RemediationPhase string

// Phases. A new request has an empty phase.
const (
	PhaseExecuting RemediationPhase = "executing"
	PhaseCompleted RemediationPhase = "completed"
	PhaseFailed    RemediationPhase = "failed"
)

// RemediationStatus is the observed state of a request.
type RemediationStatus struct {
	OverallPhase RemediationPhase `json:"overallPhase,omitempty"`
	Message      string           `json:"message,omitempty"`

	// Execution and Rollback are the names of the executions.
	Execution string `json:"execution,omitempty"`
	Rollback  string `json:"rollback,omitempty"`

	// ExecutionPhase is the last observed phase of the execution, and ObservedAt is when it was
	// first observed.
	ExecutionPhase v1alpha1.Phase    `json:"executionPhase,omitempty"`
	ObservedAt     *metav1.MicroTime `json:"observedAt,omitempty"`
}

// RemediationRequestList is a list of RemediationRequests.
type RemediationRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []RemediationRequest `json:"items"`
}

// DeepCopy copies a request.
func (r *RemediationRequest) DeepCopy() *RemediationRequest {
	c := *r
	r.ObjectMeta.DeepCopyInto(&c.ObjectMeta) //nolint:staticcheck // without the field it would read as a copy of all
	if r.Spec.Parameters != nil {
		c.Spec.Parameters = r.Spec.Parameters.DeepCopy()
	}
	c.Spec.PostConditions = slices.Clone(r.Spec.PostConditions)
	for i := range c.Spec.PostConditions {
		c.Spec.PostConditions[i] = *r.Spec.PostConditions[i].DeepCopy()
	}
	if r.Spec.Timeout != nil {
		c.Spec.Timeout = &metav1.Duration{Duration: r.Spec.Timeout.Duration}
	}
	c.Status.ObservedAt = r.Status.ObservedAt.DeepCopy()
	return &c
}

// DeepCopyObject copies a request.
func (r *RemediationRequest) DeepCopyObject() runtime.Object { return r.DeepCopy() }

// DeepCopyObject copies a list.
func (l *RemediationRequestList) DeepCopyObject() runtime.Object {
	c := &RemediationRequestList{TypeMeta: l.TypeMeta, Items: make([]RemediationRequest, len(l.Items))}
	l.ListMeta.DeepCopyInto(&c.ListMeta) //nolint:staticcheck // likewise
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopy()
	}
	return c
}
