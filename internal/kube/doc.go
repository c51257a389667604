// Package kube is the host cluster: how it is reached, and what components
// need of it in common.
package kube
