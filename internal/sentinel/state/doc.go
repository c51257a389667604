// Package state holds what a sentinel remembers between rounds, in bounded memory.
//
// A Memory holds what was announced, a DueIndex when each resource is due, a Budget how many events
// may be published now, and a DecisionRecord the latest decisions, to explain them. All of it is
// lost with the process; then some events are published once more, under the same ids.
package state
