package execution

import "github.com/fleetloop/fleetloop/api/execution/v1alpha1"

// Failure is why an execution fails. Nil means none. A Failure is a result and not an error: an
// operation that ends with an error is retried.
type Failure struct {
	Reason  v1alpha1.Reason
	Detail  v1alpha1.Detail // empty means the reason
	Message string          // what happened, to what, and what to do next
}
