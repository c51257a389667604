// Package v1alpha1 is the KubernetesExecution resource: one action that is to be
// done to one object of a cluster, what was checked and decided about it, and
// what came of it.
//
// The fields and phases are those of the executor's specification. What it does
// not have, such as the plan, approvals with names and the outcome, is added
// beside it: an object that the specification allows means the same here.
//
// +groupName=kubernetesexecution.kubernaut.io
// +kubebuilder:object:generate=true
package v1alpha1
