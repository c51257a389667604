package evaluator

import "time"

// WithCPU gives each evaluation so much CPU time.
func (e *Evaluator) WithCPU(limit time.Duration) *Evaluator {
	e.cpu = limit
	return e
}
