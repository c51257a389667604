// Package remediation is a parent of executions as the executor's specification
// has one: a RemediationRequest asks for one execution, and its controller
// makes it, follows it by a watch, and decides what becomes of it.
//
// It is an example of how to write such a parent, and what the tests of the two
// layers and the benchmarks run. It calls nobody but the API server.
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

// AddToScheme makes the types of this package known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(GroupVersion.WithKind(Kind), &Request{})
	s.AddKnownTypeWithName(GroupVersion.WithKind(Kind+"List"), &RequestList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Request is a RemediationRequest: something that is to be mended by one action.
type Request struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

// Spec is what is asked for.
type Spec struct {
	Action         string                `json:"action"`
	Parameters     *runtime.RawExtension `json:"parameters,omitempty"`
	PostConditions []v1alpha1.Condition  `json:"postConditions,omitempty"`

	// Timeout is how long all of it may take. Then the execution is cancelled.
	// Unset is without end.
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Rollback has the execution taken back if a required postcondition does not
	// hold: executions never do that by themselves.
	Rollback bool `json:"rollback,omitempty"`
}

// Phase is how far a request is.
type Phase string

// The phases. Empty is that of a new one.
const (
	PhaseExecuting Phase = "executing"
	PhaseCompleted Phase = "completed"
	PhaseFailed    Phase = "failed"
)

// Status is how a request stands.
type Status struct {
	OverallPhase Phase  `json:"overallPhase,omitempty"`
	Message      string `json:"message,omitempty"`

	// Execution and Rollback are the names of the executions.
	Execution string `json:"execution,omitempty"`
	Rollback  string `json:"rollback,omitempty"`

	// ExecutionPhase is the execution's phase that was seen last, and ObservedAt
	// when it was first seen.
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
