package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of NodeFault.
var GroupVersion = schema.GroupVersion{Group: "fleetloop.io", Version: "v1alpha1"}

// Kind is the kind of NodeFault, and Resource its name in URLs.
const (
	Kind     = "NodeFault"
	Resource = "nodefaults"
)

// AddToScheme makes the types of this package known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodeFault{}, &NodeFaultList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
