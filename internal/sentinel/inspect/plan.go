package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

const (
	// maxNames limits the number of names in one list of counts.
	maxNames = 50

	// maxOthers is the number of resources that are not due whose payloads are checked. Those of
	// all due resources are checked.
	maxOthers = 1000
)

// A PlanReport describes what a sentinel that starts now would do with one collection.
type PlanReport struct {
	Config     string `json:"config"`
	Endpoint   string `json:"endpoint"`
	Collection string `json:"collection"`
	Selector   string `json:"selector"`
	Profile    string `json:"profile"`

	MaxAgeReadySeconds    float64 `json:"max_age_ready_seconds"`
	MaxAgeNotReadySeconds float64 `json:"max_age_not_ready_seconds"`

	// Began and Ended are when the read of the collection began and ended. The fleet may have
	// changed meanwhile; each resource counts in its state when it was read.
	Began time.Time `json:"start_time"`
	Ended time.Time `json:"end_time"`

	// OnServer is the number of resources that the API returned, Matching the number of those that
	// the selector selects, and Due the number of those that would be published now.
	OnServer int `json:"total"`
	Matching int `json:"watched"`
	Due      int `json:"due"`

	// Changed is the number of due resources with a generation that no adapter has observed.
	Changed int `json:"changed"`

	// Reasons and Phases count all matching resources, the most frequent first.
	Reasons []Count `json:"reasons"`
	Phases  []Count `json:"phases"`

	// MostUrgent lists the resources that would be published now: changed generations first, and
	// then those that have waited longest. It may be truncated.
	MostUrgent []DueResource `json:"most_urgent"`

	Events EventRate `json:"events"`

	// EmptyFields lists the values of message_data that are empty, among PayloadsChecked resources:
	// all due resources, and some of the others.
	EmptyFields     []EmptyField `json:"empty_fields"`
	PayloadsChecked int          `json:"payloads_checked"`

	// TextFields lists the values of message_data that send a number or a boolean as a text, among
	// the same resources.
	TextFields []TextField `json:"text_fields"`

	// Payload is the data of one cloud event, omitted if no resource matches.
	Payload *PayloadExample `json:"payload,omitempty"`

	// Warnings counts problems of resources.
	Warnings []WarningCount `json:"warnings"`
}

// A DueResource would be published now.
type DueResource struct {
	ID                 string `json:"id"`
	Name               string `json:"name,omitempty"`
	Phase              string `json:"phase"`
	Generation         int64  `json:"generation"`
	ObservedGeneration int64  `json:"observed_generation"`
	Reason             string `json:"reason"`

	// Since is the time that the rule counted from, omitted if there was none. OverdueSeconds is
	// how long the resource has been due, 0 if unknown.
	Since          time.Time `json:"age_from,omitzero"`
	OverdueSeconds float64   `json:"overdue_seconds"`

	// EventID is the id that the event would have now.
	EventID string `json:"event_id"`
}

// An EventRate is the expected rate of cloud events.
type EventRate struct {
	// PerMinute is the rate in the steady state: each resource once per age of its phase, while
	// phases stay as they are.
	PerMinute float64 `json:"per_minute"`

	// AtMost says that PerMinute is an upper bound instead of an expected value, because the rules
	// are an expression.
	AtMost bool `json:"upper_bound"`

	// Ready and NotReady are its parts.
	Ready    RatePart `json:"ready"`
	NotReady RatePart `json:"not_ready"`

	// Once is the number of events that are published now because of changed generations.
	Once int `json:"one_time"`

	// WorstPerMinute is the rate if no resource were ready.
	WorstPerMinute float64 `json:"per_minute_if_none_ready"`

	// LimitPerMinute is the limit of publish.max_per_second, omitted if it is not set.
	LimitPerMinute float64 `json:"limit_per_minute,omitzero"`
}

// A RatePart is the rate of the resources of one kind of phase.
type RatePart struct {
	Resources int     `json:"resources"`
	PerMinute float64 `json:"per_minute"`
}

// An EmptyField is an empty value of message_data.
type EmptyField struct {
	// Key is the path of the value in the configuration.
	Key string `json:"key"`

	// Reason is the cause for the first resource with the problem, Example.
	Reason    string `json:"reason"`
	Resources int    `json:"resources"`
	Example   string `json:"example"`
}

// A TextField is a value of message_data that sends a number or a boolean as a
// text.
type TextField struct {
	// Key is the path of the value in the configuration, Field the field of
	// the resource that it sends, and Type "number" or "boolean".
	Key   string `json:"key"`
	Field string `json:"field"`
	Type  string `json:"type"`

	// Instead is the value that keeps the type.
	Instead   string `json:"suggestion"`
	Resources int    `json:"resources"`
	Example   string `json:"example"`
}

// A PayloadExample is the data of an event about one resource. If any resource would be published
// now, it is one of those, and Due is true.
type PayloadExample struct {
	ID   string          `json:"id"`
	Due  bool            `json:"due"`
	Data json.RawMessage `json:"data"`
}

// A WarningCount is the number of resources with one kind of problem.
type WarningCount struct {
	Warning   string `json:"warning"`
	Resources int    `json:"resources"`
	Example   string `json:"example,omitempty"`
}

// Plan reads a collection and reports what a sentinel with this configuration would do with it. It
// names at most limit due resources. It calls progress with the number of resources that have been
// read.
func Plan(ctx context.Context, w *Watch, maxListed int, onProgress func(resources int)) (*PlanReport, error) {
	p := &planner{watch: w, limit: maxListed}
	began := time.Now()
	if _, err := newWalk(w, w.Collection, onProgress).walkAllWithRetries(ctx, p); err != nil {
		return nil, err
	}
	return p.buildReport(began, time.Now()), nil
}

// A planner counts the resources of a walk.
type planner struct {
	watch *Watch
	limit int
	now   time.Time

	onServer, matching, due, changed, checked, others int

	reasons    [decision.NumReasons]int
	phases     map[string]int
	mostUrgent []urgent // the most urgent first
	events     EventRate
	warnings   map[string]*WarningCount
	payloads   payloadCheck
}

func (p *planner) resetCounts() {
	*p = planner{
		watch: p.watch, limit: p.limit, phases: map[string]int{}, warnings: map[string]*WarningCount{},
		payloads: newPayloadCheck(p.watch),
	}
}

func (p *planner) visitItem(it *source.Item, now time.Time) {
	p.now = now
	p.onServer++
	if it.Fault != source.FaultNone {
		text := "decode error: " + it.Fault.String() + " at " + cmp.Or(it.Field, "the resource")
		if it.Fault.Skips() {
			text += " (skipped)"
		}
		p.countWarning(text, it)
		if it.Fault.Skips() {
			return
		}
	}
	if !p.watch.selectsAndOwns(it) {
		return
	}
	p.matching++
	incrementNameOrOthers(p.phases, it.Resource.Phase)
	v := p.watch.decideResource(it, p.now)
	p.reasons[v.Reason]++
	p.addSteadyRate(&it.Resource)
	if v.Warning != decision.WarningNone {
		p.countWarning(v.Warning.String(), it)
	}
	if v.Err != nil {
		p.countWarning(v.Reason.String()+", treated as due", it)
	}
	if v.ShouldPublish {
		p.due++
		p.countChangedAndKeepMostUrgent(it, v)
	}
	if !v.ShouldPublish {
		if p.others == maxOthers {
			return
		}
		p.others++
	}
	p.checked++
	if err := p.payloads.buildAndCheckPayload(it, v, p.now); err != nil {
		p.countWarning("building the payload failed, no event would be published", it)
	}
}

// addSteadyRate adds the rate of a resource in the steady state, in which its generation is
// observed.
func (p *planner) addSteadyRate(r *decision.Resource) {
	ages := p.watch.Ages
	perMinute := time.Minute.Seconds() / ages.MaxAgeOf(r).Seconds()
	part := &p.events.NotReady
	if r.Ready() {
		part = &p.events.Ready
	}
	part.Resources++
	part.PerMinute += perMinute
	p.events.PerMinute += perMinute
	if r.Ready() {
		notReady := *r
		notReady.Phase = ""
		perMinute = time.Minute.Seconds() / ages.MaxAgeOf(&notReady).Seconds()
	}
	p.events.WorstPerMinute += perMinute
}

func (p *planner) countChangedAndKeepMostUrgent(it *source.Item, v decision.Verdict) {
	changed := v.Reason == decision.ReasonGenerationChanged
	if changed {
		p.changed++
	}
	u := urgent{changed: changed, overdue: overdueDuration(v, p.now), ever: dueSince(v).IsZero(), DueResource: DueResource{
		ID: string(it.ID), Phase: it.Resource.Phase, Generation: it.Resource.Generation, ObservedGeneration: it.Resource.ObservedGeneration,
		Reason: v.Reason.String(), Since: representableTimeOrZero(v.Since),
	}}
	full := len(p.mostUrgent) == p.limit
	if p.limit <= 0 || full && compareUrgency(u, p.mostUrgent[p.limit-1]) > 0 {
		return
	}
	u.Name = parseResourceName(it.Resource.Raw)
	u.OverdueSeconds = roundedSeconds(u.overdue)
	u.EventID = decision.DeriveEventID(u.ID, u.Generation, v, p.now)
	if full {
		p.mostUrgent = p.mostUrgent[:p.limit-1]
	}
	i, _ := slices.BinarySearchFunc(p.mostUrgent, u, compareUrgency)
	p.mostUrgent = slices.Insert(p.mostUrgent, i, u)
}

func (p *planner) countWarning(text string, it *source.Item) {
	w := p.warnings[text]
	if w == nil {
		if len(p.warnings) >= maxNames {
			text, it = others, &source.Item{}
			w = p.warnings[text]
		}
		if w == nil {
			w = &WarningCount{Warning: text, Example: string(it.ID)}
			p.warnings[text] = w
		}
	}
	w.Resources++
}

func (p *planner) buildReport(began, ended time.Time) *PlanReport {
	w := p.watch
	r := &PlanReport{
		Config: w.Name, Endpoint: w.Endpoint, Collection: w.Collection, Selector: w.formatSelection(), Profile: w.Profile,
		MaxAgeReadySeconds:    w.Ages.MaxAgeOf(&decision.Resource{Phase: "Ready"}).Seconds(),
		MaxAgeNotReadySeconds: w.Ages.MaxAgeOf(&decision.Resource{}).Seconds(),
		Began:                 truncateToMillis(began), Ended: truncateToMillis(ended),
		OnServer: p.onServer, Matching: p.matching, Due: p.due, Changed: p.changed,
		Reasons: []Count{}, Phases: sortCountsDescending(p.phases), MostUrgent: []DueResource{}, Events: p.events,
		EmptyFields: p.payloads.listEmptyFields(), PayloadsChecked: p.checked,
		TextFields: p.payloads.listTextFields(), Payload: p.payloads.example, Warnings: []WarningCount{},
	}
	for reason, n := range p.reasons {
		if n > 0 {
			r.Reasons = append(r.Reasons, Count{Name: decision.Reason(reason).String(), Count: n})
		}
	}
	slices.SortStableFunc(r.Reasons, func(a, b Count) int { return cmp.Compare(b.Count, a.Count) })
	for _, u := range p.mostUrgent {
		r.MostUrgent = append(r.MostUrgent, u.DueResource)
	}
	r.Events.Once, r.Events.AtMost, r.Events.LimitPerMinute = p.changed, !w.Certain, 60*w.MaxPerSecond
	for _, warning := range p.warnings {
		r.Warnings = append(r.Warnings, *warning)
	}
	slices.SortFunc(r.Warnings, func(a, b WarningCount) int {
		return cmp.Or(cmp.Compare(b.Resources, a.Resources), cmp.Compare(a.Warning, b.Warning))
	})
	return r
}

// urgent is a due resource with its urgency.
type urgent struct {
	DueResource
	changed bool
	ever    bool // always due
	overdue time.Duration
}

// compareUrgency sorts changed generations first, and then those that have been due longest.
func compareUrgency(a, b urgent) int {
	first := func(x, y bool) int {
		switch {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	}
	return cmp.Or(first(a.changed, b.changed), first(a.ever, b.ever), cmp.Compare(b.overdue, a.overdue), cmp.Compare(a.ID, b.ID))
}

// incrementNameOrOthers increments the count of a name, or of others if the list of names is full.
func incrementNameOrOthers(counts map[string]int, name string) {
	if _, known := counts[name]; !known && len(counts) >= maxNames {
		name = others
	}
	counts[name]++
}

func sortCountsDescending(counts map[string]int) []Count {
	list := make([]Count, 0, len(counts))
	for n, c := range counts {
		list = append(list, Count{Name: n, Count: c})
	}
	slices.SortFunc(list, func(a, b Count) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	return list
}

// parseResourceName returns the name in a resource; empty if it has none.
func parseResourceName(raw []byte) string {
	m, err := decision.ParseObject(raw, map[string]bool{"name": true, "metadata": true})
	if err != nil {
		return ""
	}
	if n, ok := m["name"].(string); ok {
		return n
	}
	meta, _ := m["metadata"].(map[string]any)
	n, _ := meta["name"].(string)
	return n
}

func roundedSeconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// truncateToMillis returns a time in the precision of reports.
func truncateToMillis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// representableTimeOrZero returns a time that JSON can represent, or the zero time.
func representableTimeOrZero(t time.Time) time.Time {
	if y := t.UTC().Year(); t.IsZero() || y < 0 || y > 9999 {
		return time.Time{}
	}
	return truncateToMillis(t)
}
