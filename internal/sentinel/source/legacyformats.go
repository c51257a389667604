package source

import (
	"bytes"
	"time"
)

// The public API has had four formats for the status of a resource. The first two have a phase,
// with the observed generation and, in the first, updated_at instead of last_updated_time. The
// others have only conditions: a summary, first called Ready and then Reconciled, and one for each
// adapter that reported, such as DnsSuccessful. The item shows its format; one list may contain
// several.
//
// A field of the status itself always takes precedence over a condition. Conditions fill in missing
// fields, and only if one of the conditions is known. A status with only unknown conditions is not
// ready: see FaultStatus.
const (
	summaryToday  = "Reconciled"
	summaryBefore = "Ready"
	ofAdapter     = "Successful"

	phaseReady    = "Ready"
	phaseNotReady = "NotReady"
)

// A statusCondition is one of the conditions of an item. wrong is the field with the wrong type.
type statusCondition struct {
	kind, status        []byte
	observed            int64
	updated, transition []byte
	wrong               string
}

// gatheredStatus summarizes the conditions of an item.
type gatheredStatus struct {
	today, before      statusCondition
	isToday, wasBefore bool
	wrong              string // the first field with the wrong type of a relevant condition
	reported           bool
	lowest             int64     // lowest generation that a reporting adapter has observed
	oldest             time.Time // the oldest report of an adapter

	listed     int  // number of conditions
	unreadable bool // whether one of them has no readable type
}

// fillFromLegacyFormats fills in the fields of an item in the format of another era. Items of the Fleetloop API
// have a phase, and cost nothing here.
func (r *itemReader) fillFromLegacyFormats() {
	res := &r.item.Resource
	if res.LastUpdated.IsZero() && r.updatedAt != nil {
		r.parseTime(&res.LastUpdated, r.updatedAt, "status.updated_at")
	}
	if r.given.phase || r.conditions == nil || r.item.Fault.Skips() {
		return
	}
	g := r.legacy.readConditions(r.conditions)
	if g.wrong != "" {
		r.noteFault(FaultWrongType, "status.conditions."+g.wrong)
		return
	}
	switch {
	case g.unreadable:
		r.noteFault(FaultStatus, "status.conditions")
	case g.isToday:
		// Its generation is always that of the resource, and so has no information.
		r.fillFromSummary(&g.today)
		r.applyObserved(g.lowest)
	case g.wasBefore:
		r.fillFromSummary(&g.before)
		if g.reported {
			r.applyObserved(g.lowest)
		} else {
			r.applyObserved(g.before.observed)
		}
	case g.reported:
		res.Phase = phaseNotReady
		r.applyObserved(g.lowest)
		if res.LastUpdated.IsZero() {
			res.LastUpdated = g.oldest
		}
	case g.listed > 0:
		r.noteFault(FaultStatus, "status.conditions")
	case r.needsNoAdapter():
		// The resource waits for nothing, so only its age counts.
		res.Phase, res.ObservedGeneration = phaseReady, res.Generation
		r.parseTime(&res.LastUpdated, r.updated, "updated_time")
	}
}

// needsNoAdapter reports whether an item with an empty list of conditions is of a kind without
// required adapters. Only the public API has such items: it adds the conditions of all other kinds
// on creation. The status of its items contains only conditions.
func (r *itemReader) needsNoAdapter() bool {
	res := &r.item.Resource
	return r.item.Public && !r.given.observed && res.LastUpdated.IsZero() && res.LastTransition.IsZero()
}

// fillFromSummary takes the phase, and the times that the status lacks, from the summary condition.
func (r *itemReader) fillFromSummary(summary *statusCondition) {
	res := &r.item.Resource
	res.Phase = phaseNotReady
	if string(summary.status) == "True" {
		res.Phase = phaseReady
	}
	if res.LastUpdated.IsZero() {
		r.parseTime(&res.LastUpdated, summary.updated, "status.conditions.last_updated_time")
	}
	if res.LastTransition.IsZero() {
		r.parseTime(&res.LastTransition, summary.transition, "status.conditions.last_transition_time")
	}
}

// applyObserved takes the observed generation from the conditions, unless the status has one.
func (r *itemReader) applyObserved(generation int64) {
	if !r.given.observed {
		r.item.Resource.ObservedGeneration = generation
	}
}

// keepConditions keeps the conditions of the status for later parsing.
func (r *itemReader) keepConditions() error {
	v, err := r.in.dec.ReadValue()
	if err != nil || v.Kind() == 'n' {
		return err
	}
	end := int(r.in.dec.InputOffset())
	r.conditions = r.in.text[end-len(v) : end]
	return nil
}

// A conditionReader reads the conditions of a status.
type conditionReader struct {
	in        jsonReader
	condition statusCondition
	gathered  gatheredStatus
}

// readConditions summarizes conditions. They are valid JSON, because they have been read once. The result is
// valid until the next call.
func (r *conditionReader) readConditions(conditions []byte) *gatheredStatus {
	r.in.openText(conditions)
	defer r.in.closeText()
	r.gathered = gatheredStatus{}
	if r.in.dec.PeekKind() != '[' {
		r.gathered.unreadable = true
		return &r.gathered
	}
	_ = r.in.readArray(r.readCondition) // cannot fail, the JSON is valid
	return &r.gathered
}

func (r *conditionReader) readCondition() error {
	r.gathered.listed++
	if kind := r.in.dec.PeekKind(); kind != '{' {
		r.gathered.unreadable = r.gathered.unreadable || kind != 'n'
		return r.in.skipValue()
	}
	r.condition = statusCondition{}
	err := r.in.readObject(r.readField)
	r.gathered.addCondition(&r.condition)
	return err
}

func (r *conditionReader) readField(name []byte) (err error) {
	c := &r.condition
	switch string(name) {
	case "type":
		c.kind, err = r.readText("type")
	case "status":
		c.status, err = r.readText("status")
	case "observed_generation", "observedGeneration":
		err = r.readGeneration()
	case "last_updated_time", "lastUpdatedTime":
		c.updated, err = r.readText("last_updated_time")
	case "last_transition_time", "lastTransitionTime":
		c.transition, err = r.readText("last_transition_time")
	default:
		err = r.in.skipValue()
	}
	return err
}

func (r *conditionReader) readText(field string) ([]byte, error) {
	v, err := r.in.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	if kind := v.Kind(); kind != '"' {
		if kind != 'n' {
			r.condition.wrong = field
		}
		return nil, nil
	}
	return r.in.unquoteString(v), nil
}

func (r *conditionReader) readGeneration() error {
	v, err := r.in.dec.ReadValue()
	if err != nil || v.Kind() == 'n' {
		return err
	}
	n, ok := parseInt(v)
	if !ok {
		r.condition.wrong = "observed_generation"
	}
	r.condition.observed = n
	return nil
}

// addCondition adds a condition to the summary. Irrelevant conditions may have any content.
func (g *gatheredStatus) addCondition(c *statusCondition) {
	switch {
	case string(c.kind) == summaryToday:
		g.today, g.isToday = *c, true
	case string(c.kind) == summaryBefore:
		g.before, g.wasBefore = *c, true
	case len(c.kind) > len(ofAdapter) && bytes.HasSuffix(c.kind, []byte(ofAdapter)):
		g.addReport(c)
	case c.wrong == "type":
		g.unreadable = true // it could be any condition
		return
	default:
		return
	}
	if g.wrong == "" {
		g.wrong = c.wrong
	}
}

// addReport adds the report of an adapter.
func (g *gatheredStatus) addReport(c *statusCondition) {
	if !g.reported || c.observed < g.lowest {
		g.lowest = c.observed
	}
	g.reported = true
	var at time.Time
	if at.UnmarshalText(c.updated) == nil && (g.oldest.IsZero() || at.Before(g.oldest)) {
		g.oldest = at
	}
}
