// Package changeevent tells an HTTP sink what was done to nodes and clusters,
// so that people on call see what changed, when and why.
//
// A Client hands events to a few workers and never blocks its caller: a sink
// that is down, slow or hostile costs events, counted and logged, and nothing
// else. Who must not lose one keeps it until OnDelivery says that it arrived.
package changeevent
