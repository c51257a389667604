// Package shard divides the resources of a fleet among several sentinels.
//
// Static parts are by count and index. A Group is made of replicas that find
// each other through Leases, share the fleet out by themselves, and hand over
// when one comes, goes or is lost. Both share out by rendezvous, so that few
// resources change hands, and none between two that both stay.
package shard
