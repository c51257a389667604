package main

import (
	"io"
	"testing"

	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

// TestJudge holds that a violation is an error, and that with a planted bug it is the lack of one.
func TestJudge(t *testing.T) {
	t.Parallel()
	kept := []history.Result{{Promise: "R1 kept"}, {Promise: "R5 kept"}}
	broken := []history.Result{{Promise: "R1 kept"}, {Promise: "R5 broken", Violations: []string{"two"}}}
	for name, test := range map[string]struct {
		reason  string
		bug     string
		results []history.Result
		fails   bool
	}{
		"Kept":     {"all is well", "", kept, false},
		"Broken":   {"a promise was broken", "", broken, true},
		"Found":    {"the checker of the bug found it", "R5", broken, false},
		"NotFound": {"no checker found it", "R5", kept, true},
		"Another":  {"another checker found something", "R1", broken, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := (&topology{bug: test.bug, out: io.Discard}).checkViolationsMatchBug(test.results); (err != nil) != test.fails {
				t.Errorf("%s: %v", test.reason, err)
			}
		})
	}
}
