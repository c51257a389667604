package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of KubernetesExecution.
var GroupVersion = schema.GroupVersion{Group: "kubernetesexecution.kubernaut.io", Version: "v1alpha1"}

// Kind is the kind of KubernetesExecution, and Resource its name in URLs.
const (
	Kind     = "KubernetesExecution"
	Resource = "kubernetesexecutions"
)

// AddToScheme makes the types of this package known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &KubernetesExecution{}, &KubernetesExecutionList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
