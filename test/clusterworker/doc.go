// Package clusterworker holds the cluster-worker against faults, as it is
// shipped: its binary, several at a time, on a real PostgreSQL and the real API
// server of Gardener.
//
// Between each worker and the garden stands a gate, which can answer in the
// garden's place, lose a request or its answer, or be late with it. It also
// takes down every request that writes, and who sent it. A storm makes random
// changes of clusters through a fleet API while at random gates misbehave, processes
// are killed and stopped, and database and garden go away and come back; when it is
// over, database and garden must agree. One storm has workers with the default
// settings, another has short times. Scenarios show the same faults one by one.
//
// The seed of a storm settles what is changed, what goes wrong and in which
// order. How all of that meets is the machine's, so that a seed makes a failure
// likely again, and not certain:
//
//	SEED=7 go test -run '^TestStormAtDefaultTimes$' ./test/clusterworker
package clusterworker
