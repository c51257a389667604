package inspect

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// A Recorder returns a sentinel's record of a resource, which may be empty.
type Recorder interface {
	FetchDecisions(ctx context.Context, id string) (state.RecordResponse, error)
	URL() string
}

// NoRecord is a Recorder for readers who do not ask the running sentinel. The record is empty.
type NoRecord struct{}

// URL implements Recorder.
func (NoRecord) URL() string { return "" }

// FetchDecisions implements Recorder.
func (NoRecord) FetchDecisions(context.Context, string) (state.RecordResponse, error) {
	return state.RecordResponse{}, nil
}

// ExplainDecision explains the decision of w about the resource with an id. If no resource has this
// id, it takes the only resource of that name. A recorder that fails is not an error.
func ExplainDecision(ctx context.Context, w *Watch, idOrName string, recorder Recorder) (*WhyReport, error) {
	r := &WhyReport{
		Config:       w.Name,
		Endpoint:     w.Endpoint,
		Collection:   w.Collection,
		Profile:      w.Profile,
		ID:           idOrName,
		Selector:     w.formatSelection(),
		Requirements: []Requirement{},
		Sentinel:     Recorded{Watches: []state.ServedDecisions{}},
	}
	raw, err := findResourceByIDOrName(ctx, w, idOrName)
	if err != nil {
		return nil, fmt.Errorf("find %q in %s of %s: %w", idOrName, w.Collection, w.Endpoint, err)
	}
	r.Time = truncateToMillis(time.Now())
	if raw == nil {
		r.State, r.Rule = StateNotFound, "not found in "+w.Collection
		r.fetchAndAddSentinelRecord(ctx, recorder)
		return r, nil
	}
	err = source.NewScanner(true).ScanResource(raw, func(it *source.Item) error {
		if len(it.ID) > 0 {
			r.ID = string(it.ID)
		}
		r.Name = parseResourceName(raw)
		r.fetchAndAddSentinelRecord(ctx, recorder)
		r.fillSelectorRequirements(w, it)
		r.fillDecision(w, it)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", w.Collection, idOrName, err)
	}
	return r, nil
}

// findResourceByIDOrName returns a resource by its id, or else by its name; nil if there is none.
func findResourceByIDOrName(ctx context.Context, w *Watch, idOrName string) (rawOrNil []byte, err error) {
	raw, err := w.Source.ListPage(ctx, w.Collection+"/"+url.PathEscape(idOrName), nil, nil)
	if err == nil {
		return raw, nil
	}
	status := source.HTTPStatusOf(err)
	isNoID := status == http.StatusNotFound || status == http.StatusBadRequest
	if !isNoID {
		return nil, err
	}
	return findResourceByName(ctx, w, idOrName)
}

// findResourceByName returns the resource with a name; nil if there is none. It is an error if there
// are several.
func findResourceByName(ctx context.Context, w *Watch, name string) (rawOrNil []byte, err error) {
	if strings.ContainsAny(name, `'\`) {
		return nil, nil // no name has these characters
	}
	query := url.Values{"search": {"name = '" + name + "'"}, "size": {"10"}}
	page, err := w.Source.ListPage(ctx, w.Collection, query, nil)
	if err != nil {
		return nil, err
	}
	var found []byte
	var ids []string
	_, err = source.NewScanner(false).ScanPage(page, func(it *source.Item) error {
		// Compare, because a server may not support the search.
		if !it.Fault.Skips() && parseResourceName(it.Resource.Raw) == name {
			found = slices.Clone(it.Resource.Raw)
			ids = append(ids, string(it.ID))
		}
		return nil
	})
	if err == nil && len(ids) > 1 {
		err = fmt.Errorf("the name is not unique; use one of the ids: %s", strings.Join(ids, ", "))
	}
	return found, err
}

// fetchAndAddSentinelRecord queries the running sentinel for its record of the resource.
func (r *WhyReport) fetchAndAddSentinelRecord(ctx context.Context, recorder Recorder) {
	r.Sentinel.URL = recorder.URL()
	response, err := recorder.FetchDecisions(ctx, r.ID)
	if err != nil {
		r.Sentinel.Error = err.Error()
		return
	}
	for _, watch := range response.Resources {
		r.Sentinel.Watches = append(r.Sentinel.Watches, watch)
		for _, recorded := range watch.Decisions {
			last := r.Sentinel.LastEvent
			if recorded.Publish && (last == nil || recorded.At.After(last.At)) {
				r.Sentinel.LastEvent = &recorded
			}
		}
	}
}

// fillSelectorRequirements reports which requirements of the selector a resource meets.
func (r *WhyReport) fillSelectorRequirements(w *Watch, it *source.Item) {
	for _, requirement := range w.Selector.Requirements() {
		onlyThis, _ := selector.New(requirement) // cannot fail: the requirement comes from a selector
		reported := Requirement{
			Requirement: requirement.String(),
			Label:       requirement.Key,
			Met:         onlyThis.Matches(&it.Labels),
		}
		if value, ok := it.Labels.Get(requirement.Key); ok {
			reported.Value = &value
		}
		r.Requirements = append(r.Requirements, reported)
	}
}

// isSelected reports whether the resource meets all requirements.
func (r *WhyReport) isSelected() bool {
	return !slices.ContainsFunc(r.Requirements, func(requirement Requirement) bool { return !requirement.Met })
}

// fillDecision decides about a resource and explains the decision.
func (r *WhyReport) fillDecision(w *Watch, it *source.Item) {
	if it.Fault.Skips() {
		r.State = StateUnreadable
		r.Rule = fmt.Sprintf("the resource is skipped (%s at %s)", it.Fault, it.Field)
		return
	}
	now := r.Time
	verdict := w.decideResource(it, now)
	res := &it.Resource
	r.Inputs = newInputs(w, it)
	r.Decision = newDecision(it, verdict, now)
	r.Rule = formatRuleSentence(w, res, verdict, now)

	// The running sentinel may have published the event already.
	afterRepeats := verdict.DelayRepeat(res, r.lastConfirmedEvent(w, res.Generation), now)
	switch {
	case !r.isSelected():
		r.State = StateNotWatched
		r.Rule = "the selector does not match: " + formatUnmet(r.Requirements)
	case !w.ownsID(it.ID):
		r.State = StateNotWatched
		r.Rule = "its id is not in " + w.Part.String()
	case afterRepeats.ShouldPublish:
		r.State = StateDue
	case verdict.ShouldPublish:
		r.State, r.Next = StateHeld, representableTimeOrZero(afterRepeats.Next)
		r.Rule += fmt.Sprintf("; an event for generation %d was published, waiting for adapters", res.Generation)
	default:
		r.State, r.Next = StateWaiting, representableTimeOrZero(verdict.Next)
	}
}

// lastConfirmedEvent returns the last confirmed event about a generation that the same watch of the
// running sentinel has published. Events of other watches do not hold back any.
func (r *WhyReport) lastConfirmedEvent(w *Watch, generation int64) (last decision.ConfirmedEvent) {
	sameWatch := strings.TrimSuffix(w.Collection+" "+w.formatSelection(), " ")
	for _, watch := range r.Sentinel.Watches {
		if watch.Watch != sameWatch {
			continue
		}
		for _, recorded := range watch.Decisions {
			isForGeneration := recorded.Publish && recorded.Generation == generation
			if isForGeneration && recorded.ConfirmedAt.After(last.At) {
				last = decision.ConfirmedEvent{Generation: generation, At: recorded.ConfirmedAt}
			}
		}
	}
	return last
}

func newInputs(w *Watch, it *source.Item) *Inputs {
	res := &it.Resource
	wholeAge, early := w.splitMaxAge(res)
	inputs := &Inputs{
		Generation:         res.Generation,
		ObservedGeneration: res.ObservedGeneration,
		Phase:              res.Phase,
		Ready:              res.Ready(),
		CreatedTime:        representableTimeOrZero(res.Created),
		UpdatedTime:        representableTimeOrZero(res.Updated),
		LastUpdatedTime:    representableTimeOrZero(res.LastUpdated),
		LastTransitionTime: representableTimeOrZero(res.LastTransition),
		MaxAgeSeconds:      roundedSeconds(wholeAge),
		EarlySeconds:       roundedSeconds(early),
	}
	if it.Fault != source.FaultNone {
		inputs.Fault = it.Fault.String() + " at " + it.Field
	}
	return inputs
}

// splitMaxAge returns the maximum age for the phase of a resource, and by how much jitter reduces it.
func (w *Watch) splitMaxAge(r *decision.Resource) (wholeAge, early time.Duration) {
	withoutJitter := *r
	withoutJitter.Early = 0
	wholeAge = w.Ages.MaxAgeOf(&withoutJitter)
	return wholeAge, wholeAge - w.Ages.MaxAgeOf(r)
}

func newDecision(it *source.Item, v decision.Verdict, now time.Time) *Decision {
	d := &Decision{
		Due:             v.ShouldPublish,
		Reason:          v.Reason.String(),
		Since:           representableTimeOrZero(v.Since),
		Next:            representableTimeOrZero(dueSince(v)),
		IntervalSeconds: roundedSeconds(v.Interval),
		Warning:         v.Warning.String(),
	}
	if v.ShouldPublish {
		d.EventID = decision.DeriveEventID(string(it.ID), it.Resource.Generation, v, now)
	}
	if v.Err != nil {
		d.Error = v.Err.Error()
	}
	return d
}

// formatRuleSentence returns a sentence about the rule that matched, and its inputs.
func formatRuleSentence(w *Watch, r *decision.Resource, v decision.Verdict, now time.Time) string {
	text := v.Reason.String()
	switch v.Reason {
	case decision.ReasonGenerationChanged:
		return fmt.Sprintf("%s: generation is %d, observed generation is %d", text, r.Generation, r.ObservedGeneration)
	case decision.ReasonExpressionTrue, decision.ReasonExpressionFalse:
		return text + ": result of the expression"
	case decision.ReasonExpressionFailed:
		return fmt.Sprintf("%s: %v; treated as due", text, v.Err)
	case decision.ReasonAnnounced, decision.ReasonDeferred, decision.NumReasons: // not the reason of a profile
		return text
	case decision.ReasonMaxAgeReady, decision.ReasonMaxAgeNotReady, decision.ReasonMaxAgeNotExpired,
		decision.ReasonBackoffExpired, decision.ReasonBackoffNotExpired: // explained by the age below
	}
	switch {
	case v.Warning == decision.WarningFutureTime:
		return fmt.Sprintf("%s: the status time is in the future, treated as due", text)
	case v.Since.IsZero():
		return fmt.Sprintf("%s: the resource has no time to calculate an age from", text)
	}
	setting := "max_age_not_ready"
	if r.Ready() {
		setting = "max_age_ready"
	}
	age := now.Sub(v.Since).Round(time.Second)
	maxAge, early := w.splitMaxAge(r)
	text = fmt.Sprintf("%s: %s since %s, %s is %s",
		text, FormatShortDuration(age), nameOfAgeStart(w, r, v.Since), setting, FormatShortDuration(maxAge))
	if early > 0 {
		text += fmt.Sprintf(" less %s of jitter", FormatShortDuration(early.Round(time.Millisecond)))
	}
	return text
}

// FormatShortDuration returns a duration without trailing zero units.
func FormatShortDuration(d time.Duration) string {
	text := d.String()
	for _, unit := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, unit) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// nameOfAgeStart returns the name of the time that a rule counted from.
func nameOfAgeStart(w *Watch, r *decision.Resource, since time.Time) string {
	switch {
	case w.Profile == profileTransition && since.Equal(r.LastTransition):
		return "last_transition_time"
	case since.Equal(r.LastUpdated):
		return "last_updated_time"
	}
	return "created_time (no status time)"
}

// profileTransition is the profile that does not use reports.
const profileTransition = "transition-age"

// formatUnmet lists the requirements that a resource does not meet.
func formatUnmet(list []Requirement) string {
	var parts []string
	for _, r := range list {
		if r.Met {
			continue
		}
		has := "the label is missing"
		if r.Value != nil {
			has = fmt.Sprintf("%s is %q", r.Label, *r.Value)
		}
		parts = append(parts, fmt.Sprintf("%s required, but %s", r.Requirement, has))
	}
	return strings.Join(parts, "; ")
}
