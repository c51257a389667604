package policy

import "time"

// WithCPU sets the CPU time of each evaluation.
func (e *Evaluator) WithCPU(limit time.Duration) *Evaluator {
	e.cpu = limit
	return e
}
