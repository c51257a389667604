// Package floors proves that the architecture's lint rules bite: its test
// plants one violation per depguard rule and denied package in a scratch
// module and wants each of them reported.
//
// A rule whose files pattern matches nothing would otherwise pass for
// obedience.
package floors
