// Package adapterapp is the adapter-runner, which runs an adapter that a file describes, without code. It
// wires the kit with its broker and the fleet API, the host cluster, metrics and health.
//
// The file has a condition, one action, a report, and what happens when the resource is deleted. NewRunner
// checks and compiles it; the [Runner] is a Reconciler of package adapter, which receives the events,
// retries and reports.
//
// # Expressions
//
// The condition, the fields available, finalized and status, and each text that begins with "cel:"
// are CEL expressions. Their variables are:
//
//	id, name, kind   texts
//	spec, status     as the fleet API serves them
//	labels           a map of texts
//	generation       an integer
//	deleted          whether the deletion was requested
//	available        the adapters that reported this generation as available
//	reports          by adapter, for this generation: conditions (type to status) and data
//	resource         everything that the fleet API serves
//	result           in reports: the result of the action
//	secrets          in headers, bodies, and the environment and input of commands: the secrets
//
// The cost of an evaluation, the size of its value, and the size of an action's output are limited.
//
// # Values stay values
//
// An expression yields a value, and the value replaces the whole text. It is encoded where it goes: as
// JSON in bodies and manifests, escaped as one segment or parameter of a URL, as one argument of a
// command, which runs without a shell. A value of an expression cannot become an option of a command.
//
// # Failures
//
// An error in the condition or in the values of an action is permanent, because it depends only on
// the resource. The actions say which of their failures are permanent. Everything else is retried.
package adapterapp
