// Package remediation is an example of a parent of executions from the specification of the
// executor. A RemediationRequest requests one execution. Its controller creates the execution,
// watches it, and decides about its rollback.
//
// The tests of the two layers and the benchmarks use it. It calls only the API server.
package remediation

import (
	_ "embed" // for the file below
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// CRD is the CustomResourceDefinition of RemediationRequests, in YAML.
//
//go:embed crd.yaml
var CRD []byte

// GroupVersion is the group and version of RemediationRequest.
var GroupVersion = schema.GroupVersion{Group: "remediation.test.fleetloop.io", Version: "v1alpha1"} //nolint:gochecknoglobals // by Kubernetes custom

// Kind is the kind of RemediationRequest, and Resource its name in URLs.
const (
	Kind     = "RemediationRequest"
	Resource = "remediationrequests"
)

// AddToScheme registers the types of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(GroupVersion.WithKind(Kind), &Request{})
	s.AddKnownTypeWithName(GroupVersion.WithKind(Kind+"List"), &RequestList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Request is a RemediationRequest, a problem that one action should fix.
type Request struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

// Spec is the desired remediation.
type Spec struct {
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

// Phase is the progress of a request.
type Phase string

// Phases. A new request has an empty phase.
const (
	PhaseExecuting Phase = "executing"
	PhaseCompleted Phase = "completed"
	PhaseFailed    Phase = "failed"
)

// Status is the observed state of a request.
type Status struct {
	OverallPhase Phase  `json:"overallPhase,omitempty"`
	Message      string `json:"message,omitempty"`

	// Execution and Rollback are the names of the executions.
	Execution string `json:"execution,omitempty"`
	Rollback  string `json:"rollback,omitempty"`

	// ExecutionPhase is the last observed phase of the execution, and ObservedAt is when it was
	// first observed.
	ExecutionPhase v1alpha1.Phase    `json:"executionPhase,omitempty"`
	ObservedAt     *metav1.MicroTime `json:"observedAt,omitempty"`
}

// RequestList is a list of RemediationRequests.
type RequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Request `json:"items"`
}

// DeepCopy copies a request.
func (r *Request) DeepCopy() *Request {
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
func (r *Request) DeepCopyObject() runtime.Object { return r.DeepCopy() }

// DeepCopyObject copies a list.
func (l *RequestList) DeepCopyObject() runtime.Object {
	c := &RequestList{TypeMeta: l.TypeMeta, Items: make([]Request, len(l.Items))}
	l.ListMeta.DeepCopyInto(&c.ListMeta) //nolint:staticcheck // likewise
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopy()
	}
	return c
}
