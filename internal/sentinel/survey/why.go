package survey

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
	"github.com/fleetloop/fleetloop/internal/sentinel/record"
	"github.com/fleetloop/fleetloop/internal/sentinel/scan"
)

// A State says in a word how it is with one resource. The set is closed.
type State string

// The states.
const (
	StateDue        State = "due"         // it would be announced now
	StateHeld       State = "published"   // it is due and was announced, and its adapters are given time to answer
	StateWaiting    State = "waiting"     // it falls due later
	StateNotWatched State = "not_watched" // the selector does not take it
	StateNotFound   State = "not_found"   // the API does not have it
	StateUnreadable State = "invalid"     // it is malformed, and passed over
)

// A WhyReport says what a configuration makes of one resource, and what the
// running sentinel made of it.
type WhyReport struct {
	Config     string `json:"config"`
	Endpoint   string `json:"endpoint"`
	Collection string `json:"collection"`
	Profile    string `json:"profile"`

	// Time is when the resource was read and decided about.
	Time time.Time `json:"time"`

	ID    string `json:"id"`
	Name  string `json:"name,omitempty"`
	State State  `json:"state"`

	// Rule is the answer in a sentence: the rule that spoke, and its inputs.
	Rule string `json:"message"`

	// Next is when it is decided anew with another outcome, if nothing else
	// changes before: the resource falls due, or was held long enough. It is
	// left out if it is due now, or if nobody can tell.
	Next time.Time `json:"next_event_time,omitzero"`

	// Selector is what the configuration selects, and Requirements its parts.
	Selector     string        `json:"selector"`
	Requirements []Requirement `json:"requirements"`

	// Inputs and Decision are left out if the resource is not there, or can not
	// be read.
	Inputs   *Inputs   `json:"inputs,omitempty"`
	Decision *Decision `json:"decision,omitempty"`

	// Sentinel is what the running sentinel has recorded.
	Sentinel Recorded `json:"sentinel"`
}

// A Requirement is one part of a selector.
type Requirement struct {
	Requirement string `json:"requirement"`

	// Label is the label that it is about, and Value what the resource has
	// there, nil if it has none.
	Label string  `json:"label"`
	Value *string `json:"value"`
	Met   bool    `json:"met"`
}

// Inputs are what the decision goes by. Times that the API did not give, or
// that play no part, are left out.
type Inputs struct {
	Generation         int64     `json:"generation"`
	ObservedGeneration int64     `json:"observed_generation"`
	Phase              string    `json:"phase"`
	Ready              bool      `json:"ready"`
	CreatedTime        time.Time `json:"created_time,omitzero"`
	UpdatedTime        time.Time `json:"updated_time,omitzero"`
	LastUpdatedTime    time.Time `json:"last_updated_time,omitzero"`
	LastTransitionTime time.Time `json:"last_transition_time,omitzero"`

	// MaxAgeSeconds is the age that holds in the resource's phase, and
	// EarlySeconds what is taken off it by jitter.
	MaxAgeSeconds float64 `json:"max_age_seconds"`
	EarlySeconds  float64 `json:"jitter_seconds"`

	// Fault is what is wrong with the resource, if it could be read all the
	// same.
	Fault string `json:"decode_error,omitempty"`
}

// A Decision is what the rules alone say, whatever was announced before.
type Decision struct {
	Due    bool   `json:"due"`
	Reason string `json:"reason"`

	// Since is the time that the rule counted from, and Next when the resource
	// falls due, or fell due.
	Since time.Time `json:"age_from,omitzero"`
	Next  time.Time `json:"due_time,omitzero"`

	// IntervalSeconds is how long one announcement holds.
	IntervalSeconds float64 `json:"interval_seconds"`

	// EventID is the id that an event would have now; empty if none is due.
	EventID string `json:"event_id,omitempty"`

	Warning string `json:"warning,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Recorded is what the running sentinel says of a resource.
type Recorded struct {
	// URL is where it was asked.
	URL string `json:"url"`

	// Error is why it could not be asked.
	Error string `json:"error,omitempty"`

	// Watches are its watches that have recorded something about the resource.
	Watches []record.Decisions `json:"histories"`

	// LastEvent is the last decision of them that called for an event.
	LastEvent *record.Decision `json:"last_event,omitempty"`
}

// A Recorder is asked for what a sentinel has recorded about a resource, which
// may be nothing.
type Recorder interface {
	Decisions(ctx context.Context, id string) (record.Answer, error)
	URL() string
}

// Why says what w makes of the resource with an id, or with a name if there is
// no such id and one resource of that name. A recorder that can not be asked is
// no error.
func Why(ctx context.Context, w *Watch, id string, recorder Recorder) (*WhyReport, error) {
	r := &WhyReport{
		Config: w.Name, Endpoint: w.Endpoint, Collection: w.Collection, Profile: w.Profile,
		ID: id, Selector: w.Selector.String(), Requirements: []Requirement{}, Sentinel: Recorded{Watches: []record.Decisions{}},
	}
	raw, err := findResource(ctx, w, id)
	if err != nil {
		return nil, fmt.Errorf("find %q in %s of %s: %w", id, w.Collection, w.Endpoint, err)
	}
	r.Time = reportTime(time.Now())
	if raw == nil {
		r.State, r.Rule = StateNotFound, "not found in "+w.Collection
		r.askSentinel(ctx, recorder)
		return r, nil
	}
	err = scan.New(true).ScanOne(raw, func(it *scan.Item) error {
		if len(it.ID) > 0 {
			r.ID = string(it.ID)
		}
		r.Name = nameOf(raw)
		r.askSentinel(ctx, recorder)
		r.explainDecision(w, it)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", w.Collection, id, err)
	}
	return r, nil
}

// findResource gets a resource by its id, or else by its name; nil if there is none.
func findResource(ctx context.Context, w *Watch, id string) ([]byte, error) {
	raw, err := w.Source.ListPage(ctx, w.Collection+"/"+url.PathEscape(id), nil, nil)
	switch {
	case err == nil:
		return raw, nil
	case statusOf(err) != http.StatusNotFound && statusOf(err) != http.StatusBadRequest:
		return nil, err
	}
	if strings.ContainsAny(id, `'\`) {
		return nil, nil
	}
	page, err := w.Source.ListPage(ctx, w.Collection, url.Values{"search": {"name = '" + id + "'"}, "size": {"10"}}, nil)
	if err != nil {
		return nil, err
	}
	var found []byte
	var ids []string
	_, err = scan.New(false).Scan(page, func(it *scan.Item) error {
		if !it.Fault.Skips() && nameOf(it.Resource.Raw) == id { // a server may not know the search
			found, ids = slices.Clone(it.Resource.Raw), append(ids, string(it.ID))
		}
		return nil
	})
	if err == nil && len(ids) > 1 {
		err = fmt.Errorf("the name is not unique; use one of the ids: %s", strings.Join(ids, ", "))
	}
	return found, err
}

// askSentinel asks the running sentinel.
func (r *WhyReport) askSentinel(ctx context.Context, recorder Recorder) {
	r.Sentinel.URL = recorder.URL()
	answer, err := recorder.Decisions(ctx, r.ID)
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

// explainDecision decides about a resource and says by what.
func (r *WhyReport) explainDecision(w *Watch, it *scan.Item) {
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
	r.Rule = explainRule(w, res, v, now)
	held := v.Hold(res, r.announced(w, res.Generation), now)
	switch {
	case !selected:
		r.State = StateNotWatched
		r.Rule = "the selector does not match: " + listUnmet(r.Requirements)
	case held.ShouldPublish:
		r.State = StateDue
	case v.ShouldPublish:
		r.State, r.Next = StateHeld, jsonTime(held.Next)
		r.Rule += fmt.Sprintf("; an event for generation %d was published, waiting for adapters", res.Generation)
	default:
		r.State, r.Next = StateWaiting, jsonTime(v.Next)
	}
}

// announced is the last event about a generation that the running sentinel has
// had confirmed by the same watch; what others announced holds nothing.
func (r *WhyReport) announced(w *Watch, generation int64) (last decision.Announcement) {
	own := strings.TrimSuffix(w.Collection+" "+w.Selector.String(), " ")
	for _, watch := range r.Sentinel.Watches {
		if watch.Watch != own {
			continue
		}
		for _, d := range watch.Decisions {
			if d.Publish && d.Generation == generation && d.ConfirmedAt.After(last.At) {
				last = decision.Announcement{Generation: generation, At: d.ConfirmedAt}
			}
		}
	}
	return last
}

func newInputs(w *Watch, it *scan.Item) *Inputs {
	res := &it.Resource
	age := w.Ages.Of(res)
	whole := *res
	whole.Early = 0
	in := &Inputs{
		Generation: res.Generation, ObservedGeneration: res.ObservedGeneration, Phase: res.Phase, Ready: res.Ready(),
		CreatedTime: jsonTime(res.Created), UpdatedTime: jsonTime(res.Updated),
		LastUpdatedTime: jsonTime(res.LastUpdated), LastTransitionTime: jsonTime(res.LastTransition),
		MaxAgeSeconds: roundedSeconds(w.Ages.Of(&whole)), EarlySeconds: roundedSeconds(w.Ages.Of(&whole) - age),
	}
	if it.Fault != scan.FaultNone {
		in.Fault = it.Fault.String() + " at " + it.Field
	}
	return in
}

func newDecision(it *scan.Item, v decision.Verdict, now time.Time) *Decision {
	d := &Decision{
		Due: v.ShouldPublish, Reason: v.Reason.String(), Since: jsonTime(v.Since), Next: jsonTime(dueSince(v)),
		IntervalSeconds: roundedSeconds(v.Interval), Warning: v.Warning.String(),
	}
	if v.ShouldPublish {
		d.EventID = decision.EventID(string(it.ID), it.Resource.Generation, v, now)
	}
	if v.Err != nil {
		d.Error = v.Err.Error()
	}
	return d
}

// explainRule says in a sentence which rule spoke, and by what.
func explainRule(w *Watch, r *decision.Resource, v decision.Verdict, now time.Time) string {
	text := v.Reason.String()
	age := w.Ages.Of(r)
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
	case decision.ReasonAnnounced, decision.ReasonDeferred, decision.NumReasons: // not of a profile
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
	text = fmt.Sprintf("%s: %s since %s, %s is %s", text, shortDuration(now.Sub(v.Since).Round(time.Second)), nameAgeStart(w, r, v.Since), limit, shortDuration(w.Ages.Of(&whole)))
	if early := w.Ages.Of(&whole) - age; early > 0 {
		text += fmt.Sprintf(" less %s of jitter", shortDuration(early.Round(time.Millisecond)))
	}
	return text
}

// shortDuration is a duration without the units that are zero at its end.
func shortDuration(d time.Duration) string {
	text := d.String()
	for _, unit := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, unit) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// nameAgeStart names the time that a rule counted from.
func nameAgeStart(w *Watch, r *decision.Resource, since time.Time) string {
	switch {
	case w.Profile == profileTransition && since.Equal(r.LastTransition):
		return "last_transition_time"
	case since.Equal(r.LastUpdated):
		return "last_updated_time"
	}
	return "created_time (no status time)"
}

// profileTransition is the profile that does not look at reports.
const profileTransition = "transition-age"

// listUnmet lists the requirements that a resource does not meet.
func listUnmet(list []Requirement) string {
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
