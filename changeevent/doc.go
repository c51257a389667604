// Package changeevent sends events about changes to nodes and clusters to an HTTP sink.
// They tell people on call what changed, when and why.
//
// A Client queues events for a few workers and never blocks its caller. Events for a sink
// that is down, slow or hostile may be dropped; each drop is counted and logged. A caller
// that must not lose an event stores it until OnDelivery reports that it was delivered.
package changeevent
