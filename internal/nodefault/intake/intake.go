// Package intake is how faults of nodes come in: what a source reports, and
// where reports go.
//
// A report is stored before it is answered for. One source's report of a check
// takes the place of its last one about the same part of the node, so a sender
// that is unsure sends again. Reports about one node are stored in the order of
// their arrival.
package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// A Store keeps reports.
type Store interface {
	// Apply stores reports, each for itself, and returns when all are durable or
	// refused. The error is a *PartialError where it is not about all of them.
	Apply(ctx context.Context, reports []nodefault.Report) error
}

// Errors of a report. Sending it again helps with the last two alone.
var (
	// ErrUnknownNode means that there is no such node.
	ErrUnknownNode = errors.New("unknown node")
	// ErrInvalid means that the report cannot be stored as it is.
	ErrInvalid = errors.New("invalid report")
	// ErrFull means that the node has as many faults as one can have.
	ErrFull = errors.New("the node has the maximum number of faults")
	// ErrBusy means that too many reports wait to be stored.
	ErrBusy = errors.New("too many reports are waiting to be stored")
	// ErrUnavailable means that the API server could not be asked.
	ErrUnavailable = errors.New("report not stored: Kubernetes API unavailable")
)

// Transient says whether the same report may be stored later.
func Transient(err error) bool {
	return err != nil && !errors.Is(err, ErrUnknownNode) && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrFull)
}

// A Refusal is a report that was not stored.
type Refusal struct {
	// Index is its place among the reports.
	Index int
	Err   error
}

// A PartialError says which reports were not stored. The others were.
type PartialError struct {
	// Refused is in the order of the reports.
	Refused []Refusal
}

// Error names the reports by their places.
func (e *PartialError) Error() string {
	const shown = 5
	var b strings.Builder
	for i, r := range e.Refused {
		if i == shown {
			fmt.Fprintf(&b, " and %d more", len(e.Refused)-shown)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "report %d: %v", r.Index, r.Err)
	}
	return b.String()
}

// Unwrap gives the errors of the reports.
func (e *PartialError) Unwrap() []error {
	out := make([]error, len(e.Refused))
	for i, r := range e.Refused {
		out[i] = r.Err
	}
	return out
}

// Collect makes one error of those of each report: nil if there are none.
func Collect(each []error) error {
	var refused []Refusal
	for i, err := range each {
		if err != nil {
			refused = append(refused, Refusal{Index: i, Err: err})
		}
	}
	if refused == nil {
		return nil
	}
	return &PartialError{Refused: refused}
}

// Each takes an error of Apply apart: one for each of n reports, nil where it
// was stored.
func Each(err error, n int) []error {
	out := make([]error, n)
	var partial *PartialError
	switch {
	case err == nil:
	case errors.As(err, &partial):
		for _, r := range partial.Refused {
			if r.Index >= 0 && r.Index < n {
				out[r.Index] = r.Err
			}
		}
	default:
		for i := range out {
			out[i] = err
		}
	}
	return out
}

// separator parts the entities of a fault.
const separator = ","

// Covers says whether a healthy report about some entities is also one about
// others: all of those are among them, or it is about all that there are.
func Covers(healthy, entity string) bool {
	if healthy == "" || healthy == entity {
		return true
	}
	if entity == "" {
		return false
	}
	all := strings.Split(healthy, separator)
	for e := range strings.SplitSeq(entity, separator) {
		if !slices.Contains(all, e) {
			return false
		}
	}
	return true
}
