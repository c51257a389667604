// Package v1alpha1 is the SentinelConfig resource: what one sentinel watches,
// when a resource is due, and where its cloud events go.
//
// The schema is that of the sentinel's specification. What it does not have, such as
// secrets by reference, the decision profile and sharding beyond labels, is
// added beside it: an object that the specification allows means the same here.
//
// +groupName=hyperfleet.redhat.com
// +kubebuilder:object:generate=true
package v1alpha1
