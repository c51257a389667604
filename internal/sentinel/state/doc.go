// Package state holds what a sentinel remembers between rounds.
package state
