// Package wake has one thing change at a time, and nothing else: the status of a
// Job, that of a Pod, the target, the spec. No node and no controller of Jobs
// makes any noise besides, and every timer is longer than the test waits, so an
// execution moves on only if the controller watches what has changed.
package wake
