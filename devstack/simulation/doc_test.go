// Package simulation runs the sentinel through seeded histories of a fleet and
// checks the results against its promises.
//
// One seed defines one world: an API with certain features, a broker, owners who
// create, patch, delete and relabel, adapters that answer or do not, faults,
// clocks that disagree, crashes and stops, changes of the configuration, and
// further sentinels that divide the fleet with the first. The sentinel is the
// real one, with the real client, over HTTP on a network in memory. Time is that
// of a synctest bubble, so that minutes take milliseconds.
//
// The same seed gives the same world and the same schedule of faults. It does
// not give exactly the same history: the order of goroutines at one instant, and
// the jitter of the sentinel's waits, are random. A seed that fails once may need
// some runs to fail again. The sentinel's clock never jumps; only the API's clock
// jumps against it.
//
//	go test ./devstack/simulation                       500 seeds, planted faults, two storms
//	SEEDS=10000 go test ./devstack/simulation           more of them
//	SEED=17 go test ./devstack/simulation -run TestSimulation
//	go test ./devstack/simulation -run TestStorm -storm 1000000 -timeout 1h
package simulation
