// Package realnodefault runs the node fault controller on a real node: pods are
// containers that are evicted, and a Job of its own asks for the reboot.
package realnodefault
