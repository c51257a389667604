// Package realexecution runs the tests of executions on a real node. The runner is a container
// from its shipped image, as in any cluster.
package realexecution
