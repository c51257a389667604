package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// A Reconciler does an adapter's work on one resource.
//
// Reconcile is called for each event, also if nothing changed since the last one, and again if the
// process ended before the report was stored. It must be idempotent, and return soon after ctx has
// ended. It is called concurrently, but never twice at the same time for one resource.
//
// An error is reported and retried. The conditions of the report then replace the standard ones of a
// failure, unless one of them says Available or Finalized. A panic counts as an error.
type Reconciler interface {
	Reconcile(ctx context.Context, r Resource) (Report, error)
}

// A ReconcilerFunc is a function that is a Reconciler.
type ReconcilerFunc func(ctx context.Context, r Resource) (Report, error)

// Reconcile calls f.
func (f ReconcilerFunc) Reconcile(ctx context.Context, r Resource) (Report, error) { return f(ctx, r) }

// A Resource is a resource as the fleet API returns it, with the reports on it.
type Resource struct {
	v1.Resource

	// Collection is the collection of the resource, such as v1.CollectionClusters.
	Collection string

	// Reports holds the last report of each adapter, including this one.
	Reports []v1.AdapterStatus
}

// Deleting reports whether the deletion of the resource was requested. The adapter then removes what
// it created, and returns Finalized.
func (r Resource) Deleting() bool { return r.DeletedTime != nil }

// IsAvailable reports whether an adapter has reported the current generation as available.
func (r Resource) IsAvailable(adapter string) bool {
	return r.HasReported(adapter, v1.ConditionAvailable)
}

// HasReported reports whether a condition is True in an adapter's report on the current generation.
// A report on an older generation concerns another spec and does not count.
func (r Resource) HasReported(adapter, condition string) (currentlyTrue bool) {
	for _, s := range r.Reports {
		if s.Adapter != adapter || s.ObservedGeneration != r.Generation {
			continue
		}
		return slices.ContainsFunc(s.Conditions, func(c v1.AdapterCondition) bool {
			return c.Type == condition && c.Status == v1.ConditionTrue
		})
	}
	return false
}

// A Report is the result of Reconcile. The functions Available, Waiting, InProgress and Finalized
// return the usual ones.
type Report struct {
	// Conditions must include Available, as True or False: the fleet API discards reports with
	// Unknown. A missing condition Health is added as True.
	Conditions []v1.ReportCondition

	// Data and Metadata are stored with the report. They are optional JSON objects.
	Data, Metadata json.RawMessage
}

// Available returns the report that the work on this generation is complete.
func Available(message string) Report {
	return newReport(v1.ConditionTrue, v1.ConditionTrue, "WorkSucceeded", message)
}

// InProgress returns the report that the work was started and is not complete yet. The sentinel
// publishes the next event after the max age of resources that are not ready.
func InProgress(message string) Report {
	return newReport(v1.ConditionFalse, v1.ConditionTrue, "WorkInProgress", message)
}

// Waiting returns the report that a precondition of the work is not met.
func Waiting(message string) Report {
	return newReport(v1.ConditionFalse, v1.ConditionFalse, "PreconditionsNotMet", message)
}

// Finalized returns the report that the adapter has cleaned up a resource that is being deleted.
func Finalized(message string) Report {
	r := newReport(v1.ConditionFalse, v1.ConditionFalse, "Deleted", message)
	r.Conditions = append(r.Conditions, v1.ReportCondition{
		Type: v1.ConditionFinalized, Status: v1.ConditionTrue, Reason: "CleanupComplete", Message: message,
	})
	return r
}

func newReport(available, applied v1.ConditionStatus, reason, message string) Report {
	return Report{Conditions: []v1.ReportCondition{
		{Type: v1.ConditionAvailable, Status: available, Reason: reason, Message: message},
		{Type: v1.ConditionApplied, Status: applied, Reason: reason, Message: message},
	}}
}

// Permanent marks an error of Reconcile that no retry will fix: the event is dead-lettered at once.
// The next event of the resource, such as that of a new generation, is reconciled as usual.
func Permanent(err error) error { return backoff.Permanent(err) }

// IsPermanent reports whether err, or an error that it wraps, is marked by Permanent. A Consumer
// dead-letters the events of such errors.
func IsPermanent(err error) bool { return backoff.IsPermanent(err) }

// maxMessage limits the text of an error in a report, in bytes.
const maxMessage = 2048

// failureReport returns the report of a failed Reconcile. Health turns False when the last attempt has
// failed, because the fleet API then shows the resource as failed.
func failureReport(given Report, err error, last bool) Report {
	r := given
	if len(r.Conditions) == 0 || r.hasTrue(v1.ConditionAvailable) || r.hasTrue(v1.ConditionFinalized) || r.validate(true) != nil {
		r.Conditions = newReport(v1.ConditionFalse, v1.ConditionUnknown, "ReconcileFailed", truncateMessage(err.Error())).Conditions
	}
	if last {
		r.Conditions = slices.DeleteFunc(slices.Clone(r.Conditions), func(c v1.ReportCondition) bool { return c.Type == v1.ConditionHealth })
		r.Conditions = append(r.Conditions, v1.ReportCondition{
			Type: v1.ConditionHealth, Status: v1.ConditionFalse, Reason: "RetriesExhausted", Message: truncateMessage(err.Error()),
		})
	}
	return r
}

// truncateMessage limits a text to maxMessage bytes, without cutting a character.
func truncateMessage(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	cut := 0
	for i := range s {
		if i > maxMessage {
			break
		}
		cut = i
	}
	return s[:cut]
}

func isAvailable(c v1.ReportCondition) bool { return c.Type == v1.ConditionAvailable }

func (r Report) hasTrue(condition string) bool {
	return slices.ContainsFunc(r.Conditions, func(c v1.ReportCondition) bool {
		return c.Type == condition && c.Status == v1.ConditionTrue
	})
}

// validate returns why the fleet API would discard the report or misread it.
func (r Report) validate(finalizedAllowed bool) error {
	i := slices.IndexFunc(r.Conditions, isAvailable)
	switch {
	case i < 0:
		return errors.New("the report has no condition Available")
	case r.Conditions[i].Status != v1.ConditionTrue && r.Conditions[i].Status != v1.ConditionFalse:
		return fmt.Errorf("the condition Available is %q; set it to True or False", r.Conditions[i].Status)
	case r.hasTrue(v1.ConditionFinalized) && !finalizedAllowed:
		return errors.New("the report has the condition Finalized, but the resource is not being deleted")
	}
	return nil
}

// newWireReportWithDefaultHealth returns the report in the form of the fleet API.
func newWireReportWithDefaultHealth(adapter string, generation int64, now time.Time, r Report) v1.Report {
	now = now.UTC()
	conditions := r.Conditions
	if !slices.ContainsFunc(conditions, func(c v1.ReportCondition) bool { return c.Type == v1.ConditionHealth }) {
		health := v1.ReportCondition{Type: v1.ConditionHealth, Status: v1.ConditionTrue, Reason: "NoErrors", Message: "Adapter is healthy"}
		conditions = append(slices.Clone(conditions), health)
	}
	return v1.Report{
		Adapter: adapter, ObservedGeneration: generation, ObservedTime: &now,
		Conditions: conditions, Data: r.Data, Metadata: r.Metadata,
	}
}
