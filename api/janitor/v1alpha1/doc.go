// Package v1alpha1 is the wire contract of RebootNode and TerminateNode: one
// reboot, or one end, of one node. NVSentinel's janitor serves the same
// objects.
//
// +groupName=janitor.dgxc.nvidia.com
// +kubebuilder:object:generate=true
package v1alpha1
