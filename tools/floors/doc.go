// Package floors tests that the architecture's lint rules work: its test adds one violation per
// depguard rule and denied package to a scratch module, and expects a report for each.
//
// Otherwise a rule whose files pattern matches nothing would look like compliance.
package floors
