// Package policy asks Open Policy Agent: whether an execution may be (Set,
// Store), and whether a pre- or postcondition holds (Conditions).
//
// It promises that nothing is allowed by accident. A decision is one document,
// data.fleetloop.safety.decision, and anything else is an error, which is never
// a leave: a document that is undefined, that lacks a field, that has one too
// many, an input that is not as the schema has it, a built-in function that
// fails, a deadline that passes. A set of policies is taken only if it compiles
// against the schema of the input, passes the tests that it brings along, and
// denies what every set must deny (the canaries); otherwise the last good one
// stays, and Status says why.
//
// Policies see what they are given and nothing else: there is no function that
// reaches the network, the environment or a random number, and the time is the
// one that the caller names. The same set, input and time give the same answer.
//
// Evaluations end at their deadline between two steps of Open Policy Agent. What
// it can not interrupt is one built-in function and one comparison of two
// values; those that could grow without bound are refused in conditions, which
// less trusted people write than policies.
package policy
