package action

import (
	"fmt"
	"strings"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// An UnknownError means that the catalogue has no action of a name.
type UnknownError struct {
	Name    string
	Nearest string // action with the most similar name, or empty
}

// Error suggests the action with the most similar name.
func (e *UnknownError) Error() string {
	if e.Nearest == "" {
		return fmt.Sprintf("unknown action %q", e.Name)
	}
	return fmt.Sprintf("unknown action %q: did you mean %s?", e.Name, e.Nearest)
}

// An InvalidError lists the problems of parameters.
type InvalidError struct {
	Action   string
	Problems []string // one per parameter, with its name
}

// Error lists all problems.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("parameters of %s: %s", e.Action, strings.Join(e.Problems, "; "))
}

// A RefusedError explains why the present object does not allow a plan.
type RefusedError struct {
	Detail  v1alpha1.Detail // target_not_found, invalid_target_state, target_changed, admission_denied or rbac_denied
	Message string
	// Unsettled means that the controller of the object has not observed its latest change. It may
	// soon have.
	Unsettled bool
}

// Error returns the message.
func (e *RefusedError) Error() string { return e.Message }
