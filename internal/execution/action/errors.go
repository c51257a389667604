package action

import (
	"fmt"
	"strings"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// An UnknownError is for an action that the catalogue does not have.
type UnknownError struct {
	Name    string
	Nearest string // the action whose name is nearest to it; empty where none is near
}

// Error names the action that was perhaps meant.
func (e *UnknownError) Error() string {
	if e.Nearest == "" {
		return fmt.Sprintf("unknown action %q", e.Name)
	}
	return fmt.Sprintf("unknown action %q: did you mean %s?", e.Name, e.Nearest)
}

// An InvalidError is why parameters are not good.
type InvalidError struct {
	Action   string
	Problems []string // one for each parameter, which it names
}

// Error names all that is wrong at once.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("parameters of %s: %s", e.Action, strings.Join(e.Problems, "; "))
}

// A RefusedError is why no plan can be made for an object as it is.
type RefusedError struct {
	Detail  v1alpha1.Detail // target_not_found, invalid_target_state, target_changed, admission_denied or rbac_denied
	Message string
}

// Error is the message.
func (e *RefusedError) Error() string { return e.Message }
