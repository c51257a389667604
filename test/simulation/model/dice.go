// Package model plays the world around a sentinel: a fleet API over HTTP on a
// network in memory, a broker, and the adapters that answer.
//
// The API speaks the wire contract of the fleet API for watchers, as far as
// its features of the moment go. What goes wrong is a schedule: each part asks
// it when it is used, and takes down in the history what struck. Whether a
// fault strikes is decided by a Dice, which always falls the same for the same
// seed, place and time, so that the order in which goroutines come is of no
// matter.
package model

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// A Dice makes random numbers that depend on a seed and on what they are for,
// and on nothing else.
type Dice uint64

// For gives the random numbers for something.
func (d Dice) For(what ...any) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, what...)                    // a hash does not fail
	return rand.New(rand.NewPCG(uint64(d), h.Sum64())) //nolint:gosec // a world that can be played again
}

// Between gives a duration from least to most.
func Between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

// OneOf gives one of some values.
func OneOf[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// Chance is true with probability p.
func Chance(r *rand.Rand, p float64) bool { return r.Float64() < p }
