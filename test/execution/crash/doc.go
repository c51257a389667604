// Package crash has the execution controller die at each of its writes: once
// before the API server hears of it, and once before the controller hears that it
// was made. Whoever comes after it goes on.
package crash
