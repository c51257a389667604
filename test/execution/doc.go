// Package execution holds the tests of executions from end to end: the controller
// as a process, a real API server, Jobs whose Pods run.
//
// Here containers are processes of this machine; the package real has those that
// run on a real node.
package execution
