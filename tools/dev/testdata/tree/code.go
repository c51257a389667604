// Package code has what is counted.
package code

import (
	"errors"
	"fmt"
)

type options struct {
	// Wait goes by the clock of its own.
	Wait string `key:"wait" doc:"What is waited for: \"nobody\" by default."`
}

func describe(name string) error { // told once
	if name == "nobody" {
		return errors.New("there is none")
	}
	return fmt.Errorf("open %q: "+"somebody has it: %w", name, fmt.Errorf("told %s", "nobody"))
}

var command = struct{ Short, Other string }{Short: "tell all", Other: "tell all"}
