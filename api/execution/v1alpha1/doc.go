// Package v1alpha1 defines the KubernetesExecution resource: one action on one object
// of a cluster, with its checks, decisions and result.
//
// The fields and phases are those of the executor's specification. Additional fields,
// such as the plan, named approvals and the outcome, do not change the meaning of an
// object that the specification allows.
//
// +groupName=kubernetesexecution.kubernaut.io
// +kubebuilder:object:generate=true
package v1alpha1
