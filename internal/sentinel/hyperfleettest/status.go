package hyperfleettest

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

type condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	Reason             string    `json:"reason,omitempty"`
	Message            string    `json:"message,omitempty"`
	ObservedGeneration int64     `json:"observed_generation"`
	CreatedTime        time.Time `json:"created_time,omitzero"`
	LastUpdatedTime    time.Time `json:"last_updated_time,omitzero"`
	LastTransitionTime time.Time `json:"last_transition_time,omitzero"`
}

// A report is the report of an adapter.
type report struct {
	Adapter            string      `json:"adapter"`
	ObservedGeneration int64       `json:"observed_generation"`
	ObservedTime       time.Time   `json:"observed_time,omitzero"`
	Conditions         []condition `json:"conditions"`
	CreatedTime        time.Time   `json:"created_time,omitzero"`
	LastReportTime     time.Time   `json:"last_report_time,omitzero"`
}

// statusOfCondition returns the status of one of the report's conditions.
func (r *report) statusOfCondition(conditionType string) string {
	for _, c := range r.Conditions {
		if c.Type == conditionType {
			return c.Status
		}
	}
	return ""
}

const (
	yes = "True"
	no  = "False"
)

// handleStoreReport stores a report. It returns 201, or 204 for a report that is not stored.
func (s *Server) handleStoreReport(k Kind) func(*http.Request) answer {
	return func(r *http.Request) answer {
		found, a := s.findRequestedResource(k, r)
		if a != nil {
			return *a
		}
		var in report
		if a := decodeBody(r, false, &in); a != nil {
			return *a
		}
		now := time.Now().UTC()
		if in.ObservedTime.IsZero() {
			in.ObservedTime = now
		}
		if a := in.validateReport(now); a != nil {
			return *a
		}
		before := found.reports[in.Adapter]
		if in.isOutdatedFutureOrUnknown(before, found.generation) {
			return answer{status: http.StatusNoContent}
		}
		in.CreatedTime, in.LastReportTime = now, now
		if before != nil {
			in.CreatedTime = before.CreatedTime
		}
		found.reports[in.Adapter] = &in
		s.updateReconciledConditions(found, now)
		s.removeIfFinalized(found)
		return answer{http.StatusCreated, in}
	}
}

func (r *report) validateReport(now time.Time) (badRequest *answer) {
	bad := func(field, constraint, message string) *answer {
		a := newErrorAnswer(http.StatusBadRequest, message, fieldError{Field: field, Constraint: constraint, Message: message})
		return &a
	}
	seen := map[string]bool{}
	for _, c := range r.Conditions {
		switch {
		case c.Type == "" || seen[c.Type]:
			return bad("conditions", "unique", "condition types must be unique and not empty")
		case c.Status != yes && c.Status != no && c.Status != "Unknown":
			return bad("conditions", "enum", "condition status must be True, False or Unknown")
		}
		seen[c.Type] = true
	}
	switch {
	case !seen["Available"] || !seen["Applied"] || !seen["Health"]:
		return bad("conditions", "required", "conditions must include Available, Applied and Health")
	case r.ObservedGeneration < 1:
		return bad("observed_generation", "min", "observed_generation must be at least 1")
	case r.ObservedTime.After(now.Add(5*time.Minute)) || r.ObservedTime.Before(now.Add(-30*time.Minute)):
		return bad("observed_time", "range", "observed_time is too far from now")
	}
	return nil
}

// isOutdatedFutureOrUnknown reports whether a report has no news.
func (r *report) isOutdatedFutureOrUnknown(previous *report, currentGeneration int64) bool {
	if r.ObservedGeneration > currentGeneration {
		return true
	}
	if previous == nil {
		return false
	}
	return r.ObservedGeneration < previous.ObservedGeneration ||
		r.ObservedGeneration == previous.ObservedGeneration && r.ObservedTime.Before(previous.ObservedTime) ||
		r.statusOfCondition("Available") == "Unknown"
}

// removeIfFinalized removes a finalized resource. It is called only when one of the resource's own
// adapters reports, as in the real API.
func (s *Server) removeIfFinalized(r *resource) {
	if r.deleted == nil || s.hasChildren(r) {
		return
	}
	for _, a := range r.kind.Adapters {
		rep := r.reports[a]
		if rep == nil || rep.ObservedGeneration != r.generation || rep.statusOfCondition("Finalized") != yes {
			return
		}
	}
	delete(s.resources, r.id)
}

func (s *Server) handleListReports(k Kind) func(*http.Request) answer {
	return func(r *http.Request) answer {
		found, a := s.findRequestedResource(k, r)
		if a != nil {
			return *a
		}
		items := []*report{}
		for _, name := range slices.Sorted(maps.Keys(found.reports)) {
			items = append(items, found.reports[name])
		}
		return answer{http.StatusOK, page[*report]{Items: items, Page: 1, Size: len(items), Total: len(items)}}
	}
}

// updateReconciledConditions computes the conditions of a resource from its reports.
func (s *Server) updateReconciledConditions(r *resource, now time.Time) {
	want := "Available"
	if r.deleted != nil {
		want = "Finalized"
	}
	all, known, oldest := true, true, time.Time{}
	tracked := int64(0)
	for _, name := range r.kind.Adapters {
		rep := r.reports[name]
		if rep == nil {
			all, known = false, false
			continue
		}
		own := condition{
			Type: pascalCase(name) + "Successful", Status: rep.statusOfCondition("Available"), Reason: "Reported",
			ObservedGeneration: rep.ObservedGeneration, CreatedTime: rep.CreatedTime, LastUpdatedTime: rep.ObservedTime,
		}
		r.transitions[name] = withTransitionTime(r.transitions[name], own, now)
		if tracked == 0 {
			tracked = rep.ObservedGeneration
		}
		known = known && rep.statusOfCondition("Available") == yes && rep.ObservedGeneration == tracked
		if rep.ObservedGeneration != r.generation {
			all = false
			continue
		}
		all = all && rep.statusOfCondition(want) == yes
		if oldest.IsZero() || rep.ObservedTime.Before(oldest) {
			oldest = rep.ObservedTime
		}
	}
	next := condition{
		// The generation is that of the resource, whatever the adapters observed.
		Type: "Reconciled", Status: no, Reason: "ReconciledMissingAdapters", Message: "not all required adapters have reported",
		ObservedGeneration: r.generation, CreatedTime: r.created, LastUpdatedTime: timeOrFallback(oldest, r.updated),
	}
	switch {
	case all && r.deleted != nil && s.hasChildren(r):
		next.Reason = "ReconciledWaitingForChildren"
	case all:
		next.Status, next.Reason, next.Message = yes, "ReconciledAll", "all required adapters have reported"
	}
	since := now
	if r.reconciled.Status == yes && r.generation > r.reconciled.ObservedGeneration {
		since = r.updated
	}
	r.reconciled = withTransitionTime(r.reconciled, next, since)
	s.updateLastKnownReconciled(r, known && tracked > 0, tracked, now)
}

// updateLastKnownReconciled updates a condition that is True after all adapters agreed about a
// generation, and stays True for newer ones until an adapter reports False for that one.
func (s *Server) updateLastKnownReconciled(r *resource, agreed bool, agreedGeneration int64, now time.Time) {
	next := r.lastKnown
	switch {
	case agreed:
		next = condition{Status: yes, Reason: "AllAtGeneration", ObservedGeneration: agreedGeneration, LastUpdatedTime: now}
	case next.Status == "":
		next = condition{Status: no, Reason: "Never", ObservedGeneration: r.generation, LastUpdatedTime: now}
	case next.Status == yes:
		for _, rep := range r.reports {
			if rep.ObservedGeneration == next.ObservedGeneration && rep.statusOfCondition("Available") == no {
				next.Status, next.Reason = no, "AdapterFailed"
			}
		}
	}
	next.Type, next.CreatedTime = "LastKnownReconciled", r.created
	r.lastKnown = withTransitionTime(r.lastKnown, next, now)
}

// withTransitionTime returns next, with the time of the last change of its status.
func withTransitionTime(before, next condition, now time.Time) condition {
	next.LastTransitionTime = now
	if before.Status == next.Status {
		next.LastTransitionTime = before.LastTransitionTime
	}
	return next
}

func timeOrFallback(t, fallback time.Time) time.Time {
	if t.IsZero() {
		return fallback
	}
	return t
}

// pascalCase returns an adapter's name in the form that conditions use.
func pascalCase(name string) string {
	var b strings.Builder
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '-' || r == '_' }) {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

// listConditions returns the conditions that the API shows today, in no fixed order.
func (r *resource) listConditions() []condition {
	if len(r.kind.Adapters) == 0 {
		return []condition{}
	}
	list := []condition{r.lastKnown, r.reconciled}
	for _, name := range r.kind.Adapters {
		if c, ok := r.transitions[name]; ok {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b condition) int {
		return cmp.Compare(a.LastUpdatedTime.UnixNano()%7, b.LastUpdatedTime.UnixNano()%7)
	})
	return list
}

// findLowestObserved returns the lowest generation of the last reports of required adapters, and
// the oldest such report. It returns 0 if one has never reported.
func (r *resource) findLowestObserved() (generation int64, oldest time.Time) {
	for _, name := range r.kind.Adapters {
		rep := r.reports[name]
		if rep == nil {
			return 0, r.created
		}
		if generation == 0 || rep.ObservedGeneration < generation {
			generation = rep.ObservedGeneration
		}
		if oldest.IsZero() || rep.ObservedTime.Before(oldest) {
			oldest = rep.ObservedTime
		}
	}
	return generation, oldest
}

// buildStatusOfEra returns the status in the format of the era.
func (s *Server) buildStatusOfEra(r *resource) any {
	phase := "NotReady"
	if r.reconciled.Status == yes {
		phase = "Ready"
	}
	observed, oldest := r.findLowestObserved()
	switch s.cfg.Era {
	case Today:
	case Third:
		list := []condition{}
		if len(r.kind.Adapters) > 0 {
			ready := r.reconciled
			ready.Type, ready.ObservedGeneration, ready.LastUpdatedTime = "Ready", observed, oldest
			available := ready
			available.Type = "Available"
			list = append(list, available, ready)
		}
		return struct {
			Conditions []condition `json:"conditions"`
		}{list}
	case Second:
		return struct {
			Phase              string      `json:"phase"`
			ObservedGeneration int64       `json:"observed_generation"`
			LastUpdatedTime    time.Time   `json:"last_updated_time"`
			LastTransitionTime time.Time   `json:"last_transition_time"`
			Conditions         []condition `json:"conditions"`
		}{phase, observed, timeOrFallback(oldest, r.updated), timeOrFallback(r.reconciled.LastTransitionTime, r.created), r.listConditions()}
	case Earliest:
		return struct {
			Phase              string    `json:"phase"`
			ObservedGeneration int64     `json:"observed_generation"`
			UpdatedAt          time.Time `json:"updated_at"`
			Adapters           []string  `json:"adapters"`
		}{phase, observed, timeOrFallback(oldest, r.updated), slices.Sorted(maps.Keys(r.reports))}
	}
	return struct {
		Conditions []condition `json:"conditions"`
	}{r.listConditions()}
}
