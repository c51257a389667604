// Package v1alpha1 is the wire contract of NodeFault: what is wrong with a
// node, what is done about it, and what was done.
//
// +groupName=fleetloop.io
// +kubebuilder:object:generate=true
package v1alpha1
