package execution

import "github.com/fleetloop/fleetloop/api/execution/v1alpha1"

// A Failure is why an execution ends as failed. Nil is none. It is a result, not
// an error: what an error stops is tried again.
type Failure struct {
	Reason  v1alpha1.Reason
	Detail  v1alpha1.Detail // empty means the reason's own word
	Message string          // what happened, to what, and what to do next
}
