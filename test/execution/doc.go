// Package execution contains the end-to-end tests of executions: the controller as a process, a
// real API server, and Jobs with running Pods.
//
// In this package, containers are processes of this machine. The tests of package real run on a
// real node.
package execution
