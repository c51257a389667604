// Package policy evaluates policies with Open Policy Agent: whether an execution is permitted (Set,
// Store), and whether a pre- or postcondition holds (Condition, and in a limited process
// Evaluator).
//
// Nothing is allowed by accident. A decision is one document, data.fleetloop.safety.decision, and
// anything else is an error, which is never a permission: an undefined document, a missing or
// additional field, an input that violates the schema, a failing built-in function, a passed
// deadline. A policy set is accepted only if it compiles against the schema of the input, passes
// its own tests, and denies what every set must deny (the canaries); otherwise the last good set
// stays, and Status returns the reason.
//
// Policies see only their input: no function reaches the network, the environment or a random
// number, and the caller sets the time. The same set, input and time give the same answer.
//
// Evaluations stop at their deadline between two steps of Open Policy Agent. A single built-in
// function or comparison of two values cannot be interrupted. Those that could grow without bound
// are refused in conditions, whose authors are less trusted than those of policies.
package policy
