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

// A State describes one resource in a word. The set is closed.
type State string

// The states.
const (
	StateDue        State = "due"         // it would be announced now
	StateHeld       State = "published"   // it is due and was announced, and its adapters still have time to answer
	StateWaiting    State = "waiting"     // it falls due later
	StateNotWatched State = "not_watched" // the selector does not select it
	StateNotFound   State = "not_found"   // the API does not have it
	StateUnreadable State = "invalid"     // it is malformed, and skipped
)

// A WhyReport contains the decision of a configuration about one resource, and the record of the
// running sentinel.
type WhyReport struct {
	Config     string `json:"config"`
	Endpoint   string `json:"endpoint"`
	Collection string `json:"collection"`
	Profile    string `json:"profile"`

	// Time is when the resource was read and the decision made.
	Time time.Time `json:"time"`

	ID    string `json:"id"`
	Name  string `json:"name,omitempty"`
	State State  `json:"state"`

	// Rule is the answer in a sentence: the rule that matched, and its inputs.
	Rule string `json:"message"`

	// Next is when the decision changes, if nothing else changes earlier: the resource falls due,
	// or has been held long enough. It is omitted if the resource is due now, or if the time is
	// unknown.
	Next time.Time `json:"next_event_time,omitzero"`

	// Selector is the selector of the configuration, and Requirements holds its parts.
	Selector     string        `json:"selector"`
	Requirements []Requirement `json:"requirements"`

	// Inputs and Decision are omitted if the resource does not exist, or is unreadable.
	Inputs   *Inputs   `json:"inputs,omitempty"`
	Decision *Decision `json:"decision,omitempty"`

	// Sentinel is the record of the running sentinel.
	Sentinel Recorded `json:"sentinel"`
}

// A Requirement is one part of a selector.
type Requirement struct {
	Requirement string `json:"requirement"`

	// Label is the key of the label, and Value its value in the resource, nil if it is missing.
	Label string  `json:"label"`
	Value *string `json:"value"`
	Met   bool    `json:"met"`
}

// Inputs holds the inputs of the decision. Missing and irrelevant times are omitted.
type Inputs struct {
	Generation         int64     `json:"generation"`
	ObservedGeneration int64     `json:"observed_generation"`
	Phase              string    `json:"phase"`
	Ready              bool      `json:"ready"`
	CreatedTime        time.Time `json:"created_time,omitzero"`
	UpdatedTime        time.Time `json:"updated_time,omitzero"`
	LastUpdatedTime    time.Time `json:"last_updated_time,omitzero"`
	LastTransitionTime time.Time `json:"last_transition_time,omitzero"`

	// MaxAgeSeconds is the age for the resource's phase, and EarlySeconds the reduction of it by
	// jitter.
	MaxAgeSeconds float64 `json:"max_age_seconds"`
	EarlySeconds  float64 `json:"jitter_seconds"`

	// Fault is the fault of the resource, if it was readable all the same.
	Fault string `json:"decode_error,omitempty"`
}

// A Decision is the verdict of the rules alone, whatever was announced before.
type Decision struct {
	Due    bool   `json:"due"`
	Reason string `json:"reason"`

	// Since is the time that the rule counted from, and Next when the resource
	// falls due, or fell due.
	Since time.Time `json:"age_from,omitzero"`
	Next  time.Time `json:"due_time,omitzero"`

	// IntervalSeconds is how long one announcement is valid.
	IntervalSeconds float64 `json:"interval_seconds"`

	// EventID is the id that an event would have now; empty if none is due.
	EventID string `json:"event_id,omitempty"`

	Warning string `json:"warning,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Recorded is the record of the running sentinel about a resource.
type Recorded struct {
	// URL is the URL of the request.
	URL string `json:"url"`

	// Error is why the request failed.
	Error string `json:"error,omitempty"`

	// Watches holds its watches that have a record of the resource.
	Watches []state.ServedDecisions `json:"histories"`

	// LastEvent is the last of their decisions that published an event.
	LastEvent *state.ServedDecision `json:"last_event,omitempty"`
}

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
		Config: w.Name, Endpoint: w.Endpoint, Collection: w.Collection, Profile: w.Profile,
		ID: idOrName, Selector: w.formatSelection(), Requirements: []Requirement{}, Sentinel: Recorded{Watches: []state.ServedDecisions{}},
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
		r.fillDecision(w, it)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", w.Collection, idOrName, err)
	}
	return r, nil
}

// findResourceByIDOrName returns a resource by its id, or else by its name; nil if there is none.
func findResourceByIDOrName(ctx context.Context, w *Watch, idOrName string) ([]byte, error) {
	raw, err := w.Source.ListPage(ctx, w.Collection+"/"+url.PathEscape(idOrName), nil, nil)
	switch {
	case err == nil:
		return raw, nil
	case source.HTTPStatusOf(err) != http.StatusNotFound && source.HTTPStatusOf(err) != http.StatusBadRequest:
		return nil, err
	}
	if strings.ContainsAny(idOrName, `'\`) {
		return nil, nil
	}
	page, err := w.Source.ListPage(ctx, w.Collection, url.Values{"search": {"name = '" + idOrName + "'"}, "size": {"10"}}, nil)
	if err != nil {
		return nil, err
	}
	var found []byte
	var ids []string
	_, err = source.NewScanner(false).ScanPage(page, func(it *source.Item) error {
		if !it.Fault.Skips() && parseResourceName(it.Resource.Raw) == idOrName { // a server may not support the search
			found, ids = slices.Clone(it.Resource.Raw), append(ids, string(it.ID))
		}
		return nil
	})
	if err == nil && len(ids) > 1 {
		err = fmt.Errorf("the name is not unique; use one of the ids: %s", strings.Join(ids, ", "))
	}
	return found, err
}

// fetchAndAddSentinelRecord queries the running sentinel.
func (r *WhyReport) fetchAndAddSentinelRecord(ctx context.Context, recorder Recorder) {
	r.Sentinel.URL = recorder.URL()
	answer, err := recorder.FetchDecisions(ctx, r.ID)
	if err != nil {
		r.Sentinel.Error = err.Error()
		return
	}
	for _, watch := range answer.Resources {
		r.Sentinel.Watches = append(r.Sentinel.Watches, watch)
		for _, d := range watch.Decisions {
			if d.Publish && (r.Sentinel.LastEvent == nil || d.At.After(r.Sentinel.LastEvent.At)) {
				r.Sentinel.LastEvent = &d
			}
		}
	}
}

// fillDecision decides about a resource and explains the decision.
func (r *WhyReport) fillDecision(w *Watch, it *source.Item) {
	selected := true
	for _, req := range w.Selector.Requirements() {
		alone, _ := selector.New(req) // it comes from a selector
		one := Requirement{Requirement: req.String(), Label: req.Key, Met: alone.Matches(&it.Labels)}
		if value, ok := it.Labels.Get(req.Key); ok {
			one.Value = &value
		}
		selected = selected && one.Met
		r.Requirements = append(r.Requirements, one)
	}
	if it.Fault.Skips() {
		r.State = StateUnreadable
		r.Rule = fmt.Sprintf("the resource is skipped (%s at %s)", it.Fault, it.Field)
		return
	}
	now := r.Time
	v := w.decideResource(it, now)
	res := &it.Resource
	r.Inputs = newInputs(w, it)
	r.Decision = newDecision(it, v, now)
	r.Rule = formatRuleSentence(w, res, v, now)
	held := v.DelayRepeat(res, r.lastConfirmedEvent(w, res.Generation), now)
	switch {
	case !selected:
		r.State = StateNotWatched
		r.Rule = "the selector does not match: " + formatUnmet(r.Requirements)
	case !w.ownsID(it.ID):
		r.State = StateNotWatched
		r.Rule = "its id is not in " + w.Part.String()
	case held.ShouldPublish:
		r.State = StateDue
	case v.ShouldPublish:
		r.State, r.Next = StateHeld, representableTimeOrZero(held.Next)
		r.Rule += fmt.Sprintf("; an event for generation %d was published, waiting for adapters", res.Generation)
	default:
		r.State, r.Next = StateWaiting, representableTimeOrZero(v.Next)
	}
}

// lastConfirmedEvent returns the last event about a generation that the running sentinel published and
// confirmed by the same watch. Announcements of other watches hold nothing.
func (r *WhyReport) lastConfirmedEvent(w *Watch, generation int64) (last decision.ConfirmedEvent) {
	own := strings.TrimSuffix(w.Collection+" "+w.formatSelection(), " ")
	for _, watch := range r.Sentinel.Watches {
		if watch.Watch != own {
			continue
		}
		for _, d := range watch.Decisions {
			if d.Publish && d.Generation == generation && d.ConfirmedAt.After(last.At) {
				last = decision.ConfirmedEvent{Generation: generation, At: d.ConfirmedAt}
			}
		}
	}
	return last
}

func newInputs(w *Watch, it *source.Item) *Inputs {
	res := &it.Resource
	age := w.Ages.MaxAgeOf(res)
	whole := *res
	whole.Early = 0
	in := &Inputs{
		Generation: res.Generation, ObservedGeneration: res.ObservedGeneration, Phase: res.Phase, Ready: res.Ready(),
		CreatedTime: representableTimeOrZero(res.Created), UpdatedTime: representableTimeOrZero(res.Updated),
		LastUpdatedTime: representableTimeOrZero(res.LastUpdated), LastTransitionTime: representableTimeOrZero(res.LastTransition),
		MaxAgeSeconds: roundedSeconds(w.Ages.MaxAgeOf(&whole)), EarlySeconds: roundedSeconds(w.Ages.MaxAgeOf(&whole) - age),
	}
	if it.Fault != source.FaultNone {
		in.Fault = it.Fault.String() + " at " + it.Field
	}
	return in
}

func newDecision(it *source.Item, v decision.Verdict, now time.Time) *Decision {
	d := &Decision{
		Due: v.ShouldPublish, Reason: v.Reason.String(), Since: representableTimeOrZero(v.Since), Next: representableTimeOrZero(dueSince(v)),
		IntervalSeconds: roundedSeconds(v.Interval), Warning: v.Warning.String(),
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
	age := w.Ages.MaxAgeOf(r)
	limit := "max_age_not_ready"
	if r.Ready() {
		limit = "max_age_ready"
	}
	switch v.Reason {
	case decision.ReasonGenerationChanged:
		return fmt.Sprintf("%s: generation is %d, observed generation is %d", text, r.Generation, r.ObservedGeneration)
	case decision.ReasonExpressionTrue, decision.ReasonExpressionFalse:
		return text + ": result of the expression"
	case decision.ReasonExpressionFailed:
		return fmt.Sprintf("%s: %v; treated as due", text, v.Err)
	case decision.ReasonMaxAgeReady, decision.ReasonMaxAgeNotReady, decision.ReasonMaxAgeNotExpired,
		decision.ReasonBackoffExpired, decision.ReasonBackoffNotExpired:
	case decision.ReasonAnnounced, decision.ReasonDeferred, decision.NumReasons: // not the reason of a profile
		return text
	}
	switch {
	case v.Warning == decision.WarningFutureTime:
		return fmt.Sprintf("%s: the status time is in the future, treated as due", text)
	case v.Since.IsZero():
		return fmt.Sprintf("%s: the resource has no time to calculate an age from", text)
	}
	whole := *r
	whole.Early = 0
	text = fmt.Sprintf("%s: %s since %s, %s is %s", text, FormatShortDuration(now.Sub(v.Since).Round(time.Second)), nameOfAgeStart(w, r, v.Since), limit, FormatShortDuration(w.Ages.MaxAgeOf(&whole)))
	if early := w.Ages.MaxAgeOf(&whole) - age; early > 0 {
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
