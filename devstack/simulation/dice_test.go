package simulation

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// A Dice creates random numbers that depend only on a seed and on their purpose.
type Dice uint64

// For returns the random numbers for a purpose.
func (d Dice) For(what ...any) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, what...) // a hash does not fail
	return rand.New(rand.NewPCG(uint64(d), h.Sum64()))
}

// Between returns a duration from least to most.
func Between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

// OneOf returns one of the values.
func OneOf[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// Chance returns true with probability p.
func Chance(r *rand.Rand, p float64) bool { return r.Float64() < p }
