// Package shard divides the resources of a fleet among several sentinels.
//
// Static parts are defined by count and index. A Group consists of replicas that discover each
// other through Leases of the host cluster, divide the fleet among themselves, and hand over when
// one joins, leaves or is lost. Both use rendezvous hashing, so that few resources change their
// owner, and none moves between two members that both stay.
package shard
