package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

const (
	// maxNames limits the number of names in one list of counts.
	maxNames = 50

	// maxCheckedNotDue is the number of resources that are not due whose payloads are checked. Those
	// of all due resources are checked.
	maxCheckedNotDue = 1000
)

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

	// See PlanReport.
	onServer, matching, due, changed int

	reasons    [decision.NumReasons]int
	phases     map[string]int
	mostUrgent []urgent // the most urgent first
	events     EventRate
	warnings   map[string]*WarningCount

	payloads      payloadCheck
	checked       int // resources whose payloads were checked
	checkedNotDue int // those of them that are not due
}

func (p *planner) resetCounts() {
	*p = planner{
		watch:    p.watch,
		limit:    p.limit,
		phases:   map[string]int{},
		warnings: map[string]*WarningCount{},
		payloads: newPayloadCheck(p.watch),
	}
}

func (p *planner) visitItem(it *source.Item, now time.Time) {
	p.now = now
	p.onServer++
	if it.Fault != source.FaultNone {
		p.countFault(it)
	}
	if it.Fault.Skips() || !p.watch.selectsAndOwns(it) {
		return
	}

	// Count the resource and the decision about it.
	p.matching++
	incrementNameOrOthers(p.phases, it.Resource.Phase)
	verdict := p.watch.decideResource(it, p.now)
	p.reasons[verdict.Reason]++
	p.addSteadyRate(&it.Resource)
	if verdict.Warning != decision.WarningNone {
		p.countWarning(verdict.Warning.String(), it)
	}
	if verdict.Err != nil {
		p.countWarning(verdict.Reason.String()+", treated as due", it)
	}
	if verdict.ShouldPublish {
		p.due++
		p.countChangedAndKeepMostUrgent(it, verdict)
	}

	// Check the payload of its event.
	if !verdict.ShouldPublish {
		if p.checkedNotDue == maxCheckedNotDue {
			return
		}
		p.checkedNotDue++
	}
	p.checked++
	if err := p.payloads.buildPayloadAndCountProblems(it, verdict, p.now); err != nil {
		p.countWarning("building the payload failed, no event would be published", it)
	}
}

// countFault counts a fault of a resource as a warning.
func (p *planner) countFault(it *source.Item) {
	text := "decode error: " + it.Fault.String() + " at " + cmp.Or(it.Field, "the resource")
	if it.Fault.Skips() {
		text += " (skipped)"
	}
	p.countWarning(text, it)
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

	notReady := *r
	notReady.Phase = ""
	p.events.WorstPerMinute += time.Minute.Seconds() / ages.MaxAgeOf(&notReady).Seconds()
}

// countChangedAndKeepMostUrgent counts a due resource with a changed generation. It keeps the
// resource if it is one of the most urgent so far.
func (p *planner) countChangedAndKeepMostUrgent(it *source.Item, v decision.Verdict) {
	changed := v.Reason == decision.ReasonGenerationChanged
	if changed {
		p.changed++
	}
	u := urgent{
		DueResource: DueResource{
			ID:                 string(it.ID),
			Phase:              it.Resource.Phase,
			Generation:         it.Resource.Generation,
			ObservedGeneration: it.Resource.ObservedGeneration,
			Reason:             v.Reason.String(),
			Since:              representableTimeOrZero(v.Since),
		},
		changed:   changed,
		alwaysDue: dueSince(v).IsZero(),
		overdue:   overdueDuration(v, p.now),
	}
	isFull := len(p.mostUrgent) == p.limit
	if p.limit <= 0 || isFull && compareUrgency(u, p.mostUrgent[p.limit-1]) > 0 {
		return
	}
	// These cost time, and few resources get here.
	u.Name = parseResourceName(it.Resource.Raw)
	u.OverdueSeconds = roundedSeconds(u.overdue)
	u.EventID = decision.DeriveEventID(u.ID, u.Generation, v, p.now)
	if isFull {
		p.mostUrgent = p.mostUrgent[:p.limit-1]
	}
	at, _ := slices.BinarySearchFunc(p.mostUrgent, u, compareUrgency)
	p.mostUrgent = slices.Insert(p.mostUrgent, at, u)
}

// countWarning counts a problem of a resource, or adds it to the others if the list of problems is
// full.
func (p *planner) countWarning(text string, it *source.Item) {
	example := string(it.ID)
	if p.warnings[text] == nil && len(p.warnings) >= maxNames {
		text, example = others, ""
	}
	warning := p.warnings[text]
	if warning == nil {
		warning = &WarningCount{Warning: text, Example: example}
		p.warnings[text] = warning
	}
	warning.Resources++
}

func (p *planner) buildReport(began, ended time.Time) *PlanReport {
	w := p.watch
	r := &PlanReport{
		Config:                w.Name,
		Endpoint:              w.Endpoint,
		Collection:            w.Collection,
		Selector:              w.formatSelection(),
		Profile:               w.Profile,
		MaxAgeReadySeconds:    w.Ages.MaxAgeOf(&decision.Resource{Phase: "Ready"}).Seconds(),
		MaxAgeNotReadySeconds: w.Ages.MaxAgeOf(&decision.Resource{}).Seconds(),
		Began:                 truncateToMillis(began),
		Ended:                 truncateToMillis(ended),
		OnServer:              p.onServer,
		Matching:              p.matching,
		Due:                   p.due,
		Changed:               p.changed,
		Reasons:               []Count{},
		Phases:                sortCountsDescending(p.phases),
		MostUrgent:            []DueResource{},
		Events:                p.events,
		EmptyFields:           p.payloads.listEmptyFieldCounts(),
		PayloadsChecked:       p.checked,
		TextFields:            p.payloads.listTextFields(),
		Payload:               p.payloads.example,
		Warnings:              []WarningCount{},
	}
	for reason, count := range p.reasons {
		if count > 0 {
			r.Reasons = append(r.Reasons, Count{Name: decision.Reason(reason).String(), Count: count})
		}
	}
	slices.SortStableFunc(r.Reasons, func(a, b Count) int { return cmp.Compare(b.Count, a.Count) })
	for _, u := range p.mostUrgent {
		r.MostUrgent = append(r.MostUrgent, u.DueResource)
	}
	r.Events.Once = p.changed
	r.Events.AtMost = !w.Certain
	r.Events.LimitPerMinute = 60 * w.MaxPerSecond
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
	changed   bool // its generation is not observed
	alwaysDue bool
	overdue   time.Duration
}

// compareUrgency sorts changed generations first, and then those that have been due longest.
func compareUrgency(a, b urgent) int {
	return cmp.Or(
		compareTrueFirst(a.changed, b.changed),
		compareTrueFirst(a.alwaysDue, b.alwaysDue),
		cmp.Compare(b.overdue, a.overdue),
		cmp.Compare(a.ID, b.ID),
	)
}

// compareTrueFirst sorts true before false.
func compareTrueFirst(a, b bool) int {
	if a == b {
		return 0
	}
	if a {
		return -1
	}
	return 1
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
	for name, count := range counts {
		list = append(list, Count{Name: name, Count: count})
	}
	slices.SortFunc(list, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// parseResourceName returns the name in a resource; empty if it has none.
func parseResourceName(raw []byte) string {
	resource, err := decision.ParseObject(raw, map[string]bool{"name": true, "metadata": true})
	if err != nil {
		return ""
	}
	if name, ok := resource["name"].(string); ok {
		return name
	}
	metadata, _ := resource["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name
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
