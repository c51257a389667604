package fleetapi

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// Bounds of a report.
const (
	// MaxReportAhead is how far an adapter's clock may be ahead of the server's.
	MaxReportAhead = 5 * time.Minute
	// MaxReportAge is the maximum age of an observation.
	MaxReportAge = 30 * time.Minute

	maxReportConditions = 32
	maxConditionType    = 63
	maxConditionReason  = 1024
	maxConditionMessage = 32768
)

// A ReportVerdict is the decision on a report. The set is closed, so that it can be a metric's label.
type ReportVerdict string

// The verdicts. Only a stored report has an effect.
const (
	ReportStored ReportVerdict = "stored"
	// ReportAhead is the verdict on a report for a generation that the resource has not reached.
	ReportAhead ReportVerdict = "generation_ahead"
	// ReportBehind is the verdict on a report for an older generation than the adapter's last.
	ReportBehind ReportVerdict = "generation_behind"
	// ReportStale is the verdict on a report for the same generation, observed before the last.
	ReportStale ReportVerdict = "observed_before_last"
	// ReportUnknown is the verdict on a report, not the adapter's first, whose availability is Unknown.
	ReportUnknown ReportVerdict = "availability_unknown"
)

// DecideReport decides about a valid report on a resource at the given generation. It distinguishes
// a report to store from one that is too late, or too early, to count. last is the same adapter's
// last report, or nil. The returned status is the one to store, and is meaningful only for
// ReportStored. The stored reports never go back: not in generation, not in time.
//
// The time of the report is that of the observation, or now if the report has none. An observation
// later than now comes from an adapter's clock that runs ahead, and counts as now; otherwise that
// adapter's next reports, sent with a corrected clock, would be stale.
func DecideReport(
	report v1.Report, last *v1.AdapterStatus, generation int64, now time.Time,
) (toStore v1.AdapterStatus, verdict ReportVerdict) {
	observed := now
	if report.ObservedTime != nil && report.ObservedTime.Before(now) {
		observed = report.ObservedTime.UTC().Truncate(time.Microsecond)
	}
	if v := classifyReport(report, last, generation, observed); v != ReportStored {
		return v1.AdapterStatus{}, v
	}

	s := v1.AdapterStatus{
		Adapter:            report.Adapter,
		ObservedGeneration: report.ObservedGeneration,
		Conditions:         make([]v1.AdapterCondition, len(report.Conditions)),
		Data:               report.Data,
		Metadata:           report.Metadata,
		CreatedTime:        now,
		LastReportTime:     observed,
	}
	if last != nil {
		s.CreatedTime = last.CreatedTime
		if last.LastReportTime.After(observed) {
			s.LastReportTime = last.LastReportTime // a newer generation, observed earlier
		}
	}
	for i, c := range report.Conditions {
		s.Conditions[i] = v1.AdapterCondition{ReportCondition: c, LastTransitionTime: s.LastReportTime}
		if p, ok := findPreviousAdapterCondition(last, c.Type); ok && p.Status == c.Status {
			s.Conditions[i].LastTransitionTime = p.LastTransitionTime
		}
	}
	return s, ReportStored
}

func classifyReport(report v1.Report, last *v1.AdapterStatus, generation int64, observed time.Time) ReportVerdict {
	switch {
	case report.ObservedGeneration > generation:
		return ReportAhead
	case last == nil:
		return ReportStored
	case report.ObservedGeneration < last.ObservedGeneration:
		return ReportBehind
	case report.ObservedGeneration == last.ObservedGeneration && observed.Before(last.LastReportTime):
		return ReportStale
	}
	for _, c := range report.Conditions {
		if c.Type == v1.ConditionAvailable && c.Status == v1.ConditionUnknown {
			return ReportUnknown
		}
	}
	return ReportStored
}

func findPreviousAdapterCondition(last *v1.AdapterStatus, conditionType string) (condition v1.AdapterCondition, found bool) {
	if last != nil {
		for _, c := range last.Conditions {
			if c.Type == conditionType {
				return c, true
			}
		}
	}
	return v1.AdapterCondition{}, false
}

// IsValidAdapterName reports whether an adapter may have the name: a lower-case DNS label, because the
// name becomes part of a condition's type.
func IsValidAdapterName(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }

// ValidateReport returns the errors of a report, nil if it is valid. now is the time of the server's clock.
func ValidateReport(report v1.Report, now time.Time) []v1.FieldError {
	var errs []v1.FieldError
	refuse := func(field, constraint string, value any, format string, args ...any) {
		errs = append(errs, v1.FieldError{
			Field: field, Constraint: constraint, Message: fmt.Sprintf(format, args...), Value: value,
		})
	}
	if !IsValidAdapterName(report.Adapter) {
		refuse("adapter", "format", report.Adapter, "must be a lower-case DNS label of 1 to %d characters", validation.DNS1123LabelMaxLength)
	}
	if report.ObservedGeneration < 1 {
		refuse("observed_generation", "min", report.ObservedGeneration, "must be at least 1")
	}
	if t := report.ObservedTime; t != nil {
		switch {
		case t.After(now.Add(MaxReportAhead)):
			refuse(
				"observed_time",
				"max",
				t,
				"must be at most %s ahead of the server's clock, which is at %s",
				MaxReportAhead,
				now.Format(time.RFC3339),
			)
		case t.Before(now.Add(-MaxReportAge)):
			refuse("observed_time", "min", t, "must be at most %s old; the server's clock is at %s", MaxReportAge, now.Format(time.RFC3339))
		}
	}
	return append(errs, validateReportConditions(report.Conditions)...)
}

func validateReportConditions(conditions []v1.ReportCondition) []v1.FieldError {
	var errs []v1.FieldError
	refuse := func(field, constraint string, value any, message string) {
		errs = append(errs, v1.FieldError{Field: field, Constraint: constraint, Message: message, Value: value})
	}
	if len(conditions) > maxReportConditions {
		refuse("conditions", "max", len(conditions), fmt.Sprintf("must be at most %d", maxReportConditions))
		return errs
	}
	seen := make(map[string]bool, len(conditions))
	for i, c := range conditions {
		field := fmt.Sprintf("conditions[%d].", i)
		switch {
		case !isValidConditionType(c.Type):
			refuse(field+"type", "format", c.Type, fmt.Sprintf("must be 1 to %d letters and digits and start with a letter", maxConditionType))
		case seen[c.Type]:
			refuse(field+"type", "unique", c.Type, "occurs more than once")
		}
		seen[c.Type] = true
		switch c.Status {
		case v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown:
		default:
			refuse(field+"status", "enum", c.Status, "must be True, False or Unknown")
		}
		for _, t := range []struct {
			name, text string
			most       int
		}{{"reason", c.Reason, maxConditionReason}, {"message", c.Message, maxConditionMessage}} {
			if n := utf8.RuneCountInString(t.text); n > t.most {
				refuse(field+t.name, "max_length", n, fmt.Sprintf("must not be longer than %d characters", t.most))
			}
			if strings.ContainsRune(t.text, 0) {
				refuse(field+t.name, "format", nil, "must not contain a NUL character")
			}
		}
	}
	for _, name := range []string{v1.ConditionAvailable, v1.ConditionApplied, v1.ConditionHealth} {
		if !seen[name] {
			refuse("conditions", "required", nil, fmt.Sprintf("must contain a condition of type %s", name))
		}
	}
	return errs
}

func isValidConditionType(text string) bool {
	if text == "" || len(text) > maxConditionType {
		return false
	}
	for i, c := range []byte(text) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		digit := c >= '0' && c <= '9' && i > 0
		if !letter && !digit {
			return false
		}
	}
	return true
}
