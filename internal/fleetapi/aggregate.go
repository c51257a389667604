package fleetapi

import (
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// The reasons of the conditions Reconciled and LastKnownReconciled.
const (
	ReasonReconciledAll      = "ReconciledAll"
	ReasonMissingAdapters    = "ReconciledMissingAdapters"
	ReasonWaitingForChildren = "ReconciledWaitingForChildren"
)

// StatusFacts are the complete input of a status.
type StatusFacts struct {
	Generation int64
	// Deleting reports whether deletion was requested.
	Deleting bool
	// Children is the number of children of the resource. It matters only while the resource is being deleted.
	Children int

	CreatedTime time.Time
	// UpdatedTime is the time of the owner's last change.
	UpdatedTime time.Time

	// Required lists the adapters that count. Reports of others have no effect.
	Required []string
	// Reports holds the last reports, at most one of each adapter, in any order.
	Reports []v1.AdapterStatus

	// Previous is the previous status, the zero value for a new resource.
	Previous v1.Status
	Now      time.Time
}

// AggregateStatus computes the status of a resource from the reports of its adapters.
//
// It is a pure function: the same facts give the same status, in whatever order the reports came.
// The observed generation is the lowest that a required adapter has observed. One silent adapter
// shows in the time of the last update. The time of the last transition changes with the phase, and
// only then. The function keeps no state and cannot fail.
//
//   - ObservedGeneration is the lowest generation among the required adapters'
//     last reports, 0 while one of them has never reported.
//   - LastUpdatedTime is the oldest of those reports; an adapter that never
//     reported counts as the resource's creation.
//   - Phase is Deleting once deletion was requested; else Pending while no
//     required adapter has reported; Failed if one is unhealthy at the current
//     generation; Ready if all are available at the current generation; and
//     Provisioning in between, so that a new generation takes Ready back.
//   - LastTransitionTime is Now if the phase changed.
//   - Conditions are Reconciled, LastKnownReconciled and one
//     "<Adapter>Successful" per required adapter that has reported whether the
//     resource is available.
//
// A kind without required adapters is Ready at once: its generation counts as observed, its last
// update is the owner's, and it has no conditions.
func AggregateStatus(facts StatusFacts) v1.Status {
	reports := facts.findRequiredReports()
	s := v1.Status{
		Phase:              facts.computePhase(reports),
		ObservedGeneration: facts.findLowestObservedGeneration(reports),
		LastUpdatedTime:    facts.oldestReportOrCreationTime(reports),
		LastTransitionTime: facts.Previous.LastTransitionTime,
		Conditions:         []v1.Condition{},
	}
	if s.Phase != facts.Previous.Phase {
		s.LastTransitionTime = facts.Now
	}
	if len(facts.Required) == 0 {
		return s
	}
	s.Conditions = append(s.Conditions,
		facts.computeReconciledCondition(reports),
		facts.computeLastKnownReconciledCondition(reports))
	for _, r := range reports {
		if r == nil {
			continue
		}
		// A condition of a resource is True or False: an adapter that reports Unknown has none yet.
		if c := newSuccessfulCondition(r); c.Status == v1.ConditionTrue || c.Status == v1.ConditionFalse {
			s.Conditions = append(s.Conditions, c)
		}
	}
	return s
}

// IsDeletionComplete reports whether the deletion of a resource is complete: every required adapter has
// reported the current generation as finalized, and no child is left.
func IsDeletionComplete(facts StatusFacts) bool {
	return facts.Deleting && facts.Children == 0 && facts.allTrueAtCurrentGeneration(facts.findRequiredReports(), v1.ConditionFinalized)
}

// FormatSuccessfulConditionType returns the condition type for an adapter: ClusterValidationSuccessful
// for cluster-validation.
func FormatSuccessfulConditionType(adapterName string) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(adapterName, func(r rune) bool { return r == '-' }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String() + "Successful"
}

// findRequiredReports returns the report of each required adapter, nil where it is missing.
func (f *StatusFacts) findRequiredReports() []*v1.AdapterStatus {
	out := make([]*v1.AdapterStatus, len(f.Required))
	for i, name := range f.Required {
		out[i] = findReport(f.Reports, name)
	}
	return out
}

func findReport(reports []v1.AdapterStatus, adapter string) *v1.AdapterStatus {
	for i := range reports {
		if reports[i].Adapter == adapter {
			return &reports[i]
		}
	}
	return nil
}

func (f *StatusFacts) computePhase(reports []*v1.AdapterStatus) v1.Phase {
	if f.Deleting {
		return v1.PhaseDeleting
	}
	reported, unhealthy := len(reports) == 0, false
	for _, r := range reports {
		if r == nil {
			continue
		}
		reported = true
		if f.hasCurrentGeneration(r) && findAdapterCondition(r, v1.ConditionHealth).Status == v1.ConditionFalse {
			unhealthy = true
		}
	}
	switch {
	case !reported:
		return v1.PhasePending
	case unhealthy:
		return v1.PhaseFailed
	case f.allTrueAtCurrentGeneration(reports, v1.ConditionAvailable):
		return v1.PhaseReady
	}
	return v1.PhaseProvisioning
}

func (f *StatusFacts) findLowestObservedGeneration(reports []*v1.AdapterStatus) int64 {
	lowest := f.Generation
	for _, r := range reports {
		if r == nil {
			return 0
		}
		lowest = min(lowest, r.ObservedGeneration)
	}
	return lowest
}

func (f *StatusFacts) oldestReportOrCreationTime(reports []*v1.AdapterStatus) time.Time {
	if len(reports) == 0 {
		return f.UpdatedTime
	}
	var oldest time.Time
	for _, r := range reports {
		if r == nil {
			return f.CreatedTime
		}
		oldest = earlierNonZeroTime(oldest, r.LastReportTime)
	}
	return oldest
}

// computeReconciledCondition returns the condition of the whole resource, as the public API defines it. Its observed
// generation is that of the resource: the condition states how far that one is. The public sentinel's rules rely on
// this. With the adapters' generation, they publish an event at every poll until all adapters have reported. The
// generation that adapters have observed is in the status and in their own conditions.
func (f *StatusFacts) computeReconciledCondition(reports []*v1.AdapterStatus) v1.Condition {
	c := v1.Condition{
		Type:               v1.ConditionReconciled,
		Status:             v1.ConditionFalse,
		Reason:             ReasonMissingAdapters,
		Message:            "waiting for " + strings.Join(f.listUnmetAdapters(reports), ", "),
		ObservedGeneration: f.Generation,
	}
	done := f.allTrueAtCurrentGeneration(reports, f.goalConditionType())
	switch {
	case done && f.Deleting && f.Children > 0:
		c.Reason, c.Message = ReasonWaitingForChildren, "waiting for the deletion of its child resources"
	case done:
		c.Status, c.Reason, c.Message = v1.ConditionTrue, ReasonReconciledAll, "all required adapters have reconciled the current generation"
	}

	var oldest time.Time
	for _, r := range reports {
		if r != nil && f.hasCurrentGeneration(r) {
			oldest = earlierNonZeroTime(oldest, r.LastReportTime)
		}
	}
	c.LastUpdatedTime = oldest
	transitionTime := f.Now
	if oldest.IsZero() {
		c.LastUpdatedTime = f.UpdatedTime
		if c.Status == v1.ConditionFalse {
			transitionTime = f.UpdatedTime // the new generation caused the change
		}
	}
	return f.keepPreviousTimes(c, transitionTime)
}

// computeLastKnownReconciledCondition is True once all required adapters were available at one generation. It stays
// so through newer generations until an adapter withdraws its availability for that generation.
func (f *StatusFacts) computeLastKnownReconciledCondition(reports []*v1.AdapterStatus) v1.Condition {
	c := v1.Condition{
		Type:            v1.ConditionLastKnownReconciled,
		Status:          v1.ConditionFalse,
		Reason:          ReasonMissingAdapters,
		LastUpdatedTime: f.Now,
	}
	if p, ok := findCondition(f.Previous, c.Type); ok {
		c = p
	}

	allAvailableTogether, withdrawn := true, false
	var generation int64
	var oldest time.Time
	for i, r := range reports {
		if r == nil {
			allAvailableTogether = false
			continue
		}
		if i == 0 {
			generation = r.ObservedGeneration
		}
		status := findAdapterCondition(r, v1.ConditionAvailable).Status
		if status == v1.ConditionFalse && r.ObservedGeneration == c.ObservedGeneration {
			withdrawn = true
		}
		if status != v1.ConditionTrue || r.ObservedGeneration != generation {
			allAvailableTogether = false
		}
		oldest = earlierNonZeroTime(oldest, r.LastReportTime)
	}
	switch {
	case allAvailableTogether:
		c.Status, c.Reason = v1.ConditionTrue, ReasonReconciledAll
		c.ObservedGeneration, c.LastUpdatedTime = generation, oldest
	case withdrawn && c.Status == v1.ConditionTrue:
		c.Status, c.Reason, c.LastUpdatedTime = v1.ConditionFalse, ReasonMissingAdapters, f.Now
	}
	return f.keepPreviousTimes(c, f.Now)
}

func newSuccessfulCondition(report *v1.AdapterStatus) v1.Condition {
	available := findAdapterCondition(report, v1.ConditionAvailable)
	return v1.Condition{
		Type:               FormatSuccessfulConditionType(report.Adapter),
		Status:             available.Status,
		Reason:             available.Reason,
		Message:            available.Message,
		ObservedGeneration: report.ObservedGeneration,
		CreatedTime:        report.CreatedTime,
		LastUpdatedTime:    report.LastReportTime,
		LastTransitionTime: available.LastTransitionTime,
	}
}

// keepPreviousTimes returns the condition with the times of its predecessor. If the status differs,
// it has the given transition time.
func (f *StatusFacts) keepPreviousTimes(condition v1.Condition, transitionTime time.Time) v1.Condition {
	p, ok := findCondition(f.Previous, condition.Type)
	switch {
	case !ok:
		condition.CreatedTime, condition.LastTransitionTime = f.Now, f.Now
	case p.Status == condition.Status:
		condition.CreatedTime, condition.LastTransitionTime = p.CreatedTime, p.LastTransitionTime
	default:
		condition.CreatedTime, condition.LastTransitionTime = p.CreatedTime, transitionTime
	}
	return condition
}

func findCondition(status v1.Status, conditionType string) (condition v1.Condition, found bool) {
	for _, c := range status.Conditions {
		if c.Type == conditionType {
			return c, true
		}
	}
	return v1.Condition{}, false
}

// goalConditionType returns the condition that all required adapters must report as True.
func (f *StatusFacts) goalConditionType() string {
	if f.Deleting {
		return v1.ConditionFinalized
	}
	return v1.ConditionAvailable
}

func (f *StatusFacts) allTrueAtCurrentGeneration(reports []*v1.AdapterStatus, conditionType string) bool {
	for _, r := range reports {
		if !f.isTrueAtCurrentGeneration(r, conditionType) {
			return false
		}
	}
	return true
}

func (f *StatusFacts) listUnmetAdapters(reports []*v1.AdapterStatus) []string {
	var names []string
	for i, r := range reports {
		if !f.isTrueAtCurrentGeneration(r, f.goalConditionType()) {
			names = append(names, f.Required[i])
		}
	}
	return names
}

func (f *StatusFacts) isTrueAtCurrentGeneration(report *v1.AdapterStatus, conditionType string) bool {
	return report != nil && f.hasCurrentGeneration(report) && findAdapterCondition(report, conditionType).Status == v1.ConditionTrue
}

func (f *StatusFacts) hasCurrentGeneration(report *v1.AdapterStatus) bool {
	return report.ObservedGeneration == f.Generation
}

// findAdapterCondition returns a condition of a report. If it is absent, the zero value's status is
// neither True nor False.
func findAdapterCondition(report *v1.AdapterStatus, conditionType string) v1.AdapterCondition {
	for _, c := range report.Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	return v1.AdapterCondition{}
}

// earlierNonZeroTime returns the earlier of the two; a zero a counts as absent.
func earlierNonZeroTime(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
