// Package realexecution runs the tests of executions on a real node: the runner is a
// container from its own image, as in any cluster.
package realexecution
