// Package kube connects to the host cluster, and has the parts that components share to
// use it.
package kube
