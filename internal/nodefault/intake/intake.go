// Package intake receives reports about faults of nodes from sources and stores them in
// NodeFaults.
//
// The sources are the nodes themselves, see ConditionSet, and monitors, which send reports
// over HTTP, see NewHTTPHandler, or over gRPC, see NewListeningGRPCServer. An Authenticator
// accepts the callers and CallerLimits limits them. A FaultStore stores the reports.
//
// A report is stored before it is acknowledged. A report replaces the last report of the
// same source and check about the same entity, so a sender that is unsure can send it
// again. Reports about one node are stored in the order of their arrival. But a health
// event that its monitor generated before the last stored one about the same fault is
// rejected: it was delayed, for example in a process that did not run for some time. The
// end of a fault that was never stored is not kept.
package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// A Store stores reports.
type Store interface {
	// Apply stores reports, independently of each other, and returns when all are durable
	// or rejected. The error is a *PartialError unless it concerns all of them.
	Apply(ctx context.Context, reports []nodefault.Report) error
}

// Errors of a report. Only ErrBusy and ErrUnavailable are worth a retry.
var (
	// ErrUnknownNode means that the node does not exist.
	ErrUnknownNode = errors.New("unknown node")
	// ErrInvalid means that the content of the report cannot be stored.
	ErrInvalid = errors.New("invalid report")
	// ErrFull means that the node has the maximum number of faults.
	ErrFull = errors.New("the node has the maximum number of faults")
	// ErrOutdated means that the source generated the report before the last stored one
	// about the same fault, or about one of the faults that a healthy report would end.
	ErrOutdated = errors.New("outdated report")
	// ErrBusy means that too many reports are waiting to be stored.
	ErrBusy = errors.New("too many reports are waiting to be stored")
	// ErrUnavailable means that the API server is unavailable.
	ErrUnavailable = errors.New("report not stored: Kubernetes API unavailable")
)

// Transient reports whether a retry of the same report may succeed.
func Transient(err error) bool {
	permanent := []error{ErrUnknownNode, ErrInvalid, ErrFull, ErrOutdated}
	return err != nil && !slices.ContainsFunc(permanent, func(e error) bool { return errors.Is(err, e) })
}

// A Refusal is a report that was not stored.
type Refusal struct {
	// Index is the index of the report.
	Index int
	Err   error
}

// A PartialError lists the reports that were not stored. The others were stored.
type PartialError struct {
	// Refused is in the order of the reports.
	Refused []Refusal
}

// Error lists the errors with the indexes of the reports.
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

// Unwrap returns the errors of the reports.
func (e *PartialError) Unwrap() []error {
	out := make([]error, len(e.Refused))
	for i, r := range e.Refused {
		out[i] = r.Err
	}
	return out
}

// JoinReportErrors combines the errors of the reports into a *PartialError, or returns nil if all
// are nil.
func JoinReportErrors(byReport []error) error {
	var refused []Refusal
	for i, err := range byReport {
		if err != nil {
			refused = append(refused, Refusal{Index: i, Err: err})
		}
	}
	if refused == nil {
		return nil
	}
	return &PartialError{Refused: refused}
}

// SplitReportErrors splits an error of Apply into the errors of the given number of reports. An
// error is nil if the report was stored.
func SplitReportErrors(err error, reports int) (byReport []error) {
	byReport = make([]error, reports)
	var partial *PartialError
	if !errors.As(err, &partial) { // nil, or an error that concerns all reports
		for i := range byReport {
			byReport[i] = err
		}
		return byReport
	}
	for _, r := range partial.Refused {
		if r.Index >= 0 && r.Index < reports {
			byReport[r.Index] = r.Err
		}
	}
	return byReport
}

// separator separates the entities of a fault.
const separator = ","

// CoversEntities reports whether a healthy report about some entities also covers a fault. It
// does if it includes all entities of the fault, or if it is about all entities of the
// check.
func CoversEntities(healthyEntities, faultEntities string) bool {
	if healthyEntities == "" || healthyEntities == faultEntities {
		return true
	}
	if faultEntities == "" {
		return false
	}
	healthy := strings.Split(healthyEntities, separator)
	for entity := range strings.SplitSeq(faultEntities, separator) {
		if !slices.Contains(healthy, entity) {
			return false
		}
	}
	return true
}
