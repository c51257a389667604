// Package realnodefault runs the node fault controller on a real node: pods run in
// containers and are evicted, and a Job requests the reboot.
package realnodefault
