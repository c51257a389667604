// Package crash has the execution controller die at each of its writes: once
// before the API server hears of it, and once before the controller hears that it
// was made. Whoever comes after it goes on, also where somebody has deleted the
// execution meanwhile. What an action that runs in the controller writes of its
// target is such a write, too.
package crash
