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
	currentSummary = "Reconciled"
	formerSummary  = "Ready"
	adapterSuffix  = "Successful"

	phaseReady    = "Ready"
	phaseNotReady = "NotReady"
)

// A statusCondition is one of the conditions of an item.
type statusCondition struct {
	kind, status        []byte
	observed            int64 // generation
	updated, transition []byte
	wrongField          string // a field with the wrong type; empty if there is none
}

// gatheredStatus summarizes the conditions of an item.
type gatheredStatus struct {
	count         int  // number of conditions
	hasUnreadable bool // one of them has no readable type

	// wrongField is the first field with the wrong type of a relevant condition.
	wrongField string

	// The summary conditions.
	current, former       statusCondition
	hasCurrent, hasFormer bool

	// The reports of adapters.
	hasReports     bool
	lowestObserved int64 // lowest generation that a reporting adapter has observed
	oldestReport   time.Time
}

// fillFromLegacyFormats fills in the fields of an item in the format of another era. Items of the
// Fleetloop API have a phase, and cost nothing here.
func (r *itemReader) fillFromLegacyFormats() {
	res := &r.item.Resource
	if res.LastUpdated.IsZero() && r.updatedAt != nil {
		r.parseTimeOrRecordFault(&res.LastUpdated, r.updatedAt, "status.updated_at")
	}
	if r.given.phase || r.conditions == nil || r.item.Fault.Skips() {
		return
	}
	g := r.legacy.summarizeConditions(r.conditions)
	if g.wrongField != "" {
		r.recordFault(FaultWrongType, "status.conditions."+g.wrongField)
		return
	}
	switch {
	case g.hasUnreadable:
		r.recordFault(FaultStatus, "status.conditions")
	case g.hasCurrent:
		// Its generation is always that of the resource, and so has no information.
		r.fillFromSummaryCondition(&g.current)
		r.setObservedGenerationIfMissing(g.lowestObserved)
	case g.hasFormer:
		r.fillFromSummaryCondition(&g.former)
		if g.hasReports {
			r.setObservedGenerationIfMissing(g.lowestObserved)
		} else {
			r.setObservedGenerationIfMissing(g.former.observed)
		}
	case g.hasReports:
		res.Phase = phaseNotReady
		r.setObservedGenerationIfMissing(g.lowestObserved)
		if res.LastUpdated.IsZero() {
			res.LastUpdated = g.oldestReport
		}
	case g.count > 0:
		r.recordFault(FaultStatus, "status.conditions")
	case r.needsNoAdapter():
		// The resource waits for nothing, so only its age counts.
		res.Phase, res.ObservedGeneration = phaseReady, res.Generation
		r.parseTimeOrRecordFault(&res.LastUpdated, r.updated, "updated_time")
	}
}

// needsNoAdapter reports whether an item with an empty list of conditions is of a kind without
// required adapters. Only the public API has such items: it adds the conditions of all other kinds
// on creation. The status of its items contains only conditions.
func (r *itemReader) needsNoAdapter() bool {
	res := &r.item.Resource
	return r.item.Public && !r.given.observed && res.LastUpdated.IsZero() && res.LastTransition.IsZero()
}

// fillFromSummaryCondition takes the phase, and the times that the status lacks, from the summary
// condition.
func (r *itemReader) fillFromSummaryCondition(summary *statusCondition) {
	res := &r.item.Resource
	res.Phase = phaseNotReady
	if string(summary.status) == "True" {
		res.Phase = phaseReady
	}
	if res.LastUpdated.IsZero() {
		r.parseTimeOrRecordFault(&res.LastUpdated, summary.updated, "status.conditions.last_updated_time")
	}
	if res.LastTransition.IsZero() {
		r.parseTimeOrRecordFault(&res.LastTransition, summary.transition, "status.conditions.last_transition_time")
	}
}

// setObservedGenerationIfMissing takes the observed generation from the conditions, unless the
// status has one.
func (r *itemReader) setObservedGenerationIfMissing(generation int64) {
	if !r.given.observed {
		r.item.Resource.ObservedGeneration = generation
	}
}

// keepRawConditions keeps the conditions of the status for later parsing.
func (r *itemReader) keepRawConditions() error {
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

// summarizeConditions summarizes conditions. They are valid JSON, because they have been read once.
// The result is valid until the next call.
func (r *conditionReader) summarizeConditions(conditions []byte) *gatheredStatus {
	r.in.resetToText(conditions)
	defer r.in.releaseText()
	r.gathered = gatheredStatus{}
	if r.in.dec.PeekKind() != '[' {
		r.gathered.hasUnreadable = true
		return &r.gathered
	}
	_ = r.in.readArrayElements(r.readAndAddCondition) // cannot fail, the JSON is valid
	return &r.gathered
}

func (r *conditionReader) readAndAddCondition() error {
	r.gathered.count++
	if kind := r.in.dec.PeekKind(); kind != '{' {
		r.gathered.hasUnreadable = r.gathered.hasUnreadable || kind != 'n'
		return r.in.skipValue()
	}
	r.condition = statusCondition{}
	err := r.in.readObjectFields(r.readConditionField)
	r.gathered.addCondition(&r.condition)
	return err
}

func (r *conditionReader) readConditionField(name []byte) (err error) {
	c := &r.condition
	switch string(name) {
	case "type":
		c.kind, err = r.readStringOrSetWrongField("type")
	case "status":
		c.status, err = r.readStringOrSetWrongField("status")
	case "observed_generation", "observedGeneration":
		err = r.readGenerationOrSetWrongField()
	case "last_updated_time", "lastUpdatedTime":
		c.updated, err = r.readStringOrSetWrongField("last_updated_time")
	case "last_transition_time", "lastTransitionTime":
		c.transition, err = r.readStringOrSetWrongField("last_transition_time")
	default:
		err = r.in.skipValue()
	}
	return err
}

func (r *conditionReader) readStringOrSetWrongField(field string) ([]byte, error) {
	v, err := r.in.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	if kind := v.Kind(); kind != '"' {
		if kind != 'n' {
			r.condition.wrongField = field
		}
		return nil, nil
	}
	return r.in.unquoteLastString(v), nil
}

func (r *conditionReader) readGenerationOrSetWrongField() error {
	v, err := r.in.dec.ReadValue()
	if err != nil || v.Kind() == 'n' {
		return err
	}
	n, ok := parseJSONInteger(v)
	if !ok {
		r.condition.wrongField = "observed_generation"
	}
	r.condition.observed = n
	return nil
}

// addCondition adds a condition to the summary. Irrelevant conditions may have any content.
func (g *gatheredStatus) addCondition(c *statusCondition) {
	switch {
	case string(c.kind) == currentSummary:
		g.current, g.hasCurrent = *c, true
	case string(c.kind) == formerSummary:
		g.former, g.hasFormer = *c, true
	case len(c.kind) > len(adapterSuffix) && bytes.HasSuffix(c.kind, []byte(adapterSuffix)):
		g.addAdapterReport(c)
	case c.wrongField == "type":
		g.hasUnreadable = true // it could be any condition
		return
	default:
		return
	}
	if g.wrongField == "" {
		g.wrongField = c.wrongField
	}
}

// addAdapterReport adds the report of an adapter.
func (g *gatheredStatus) addAdapterReport(c *statusCondition) {
	if !g.hasReports || c.observed < g.lowestObserved {
		g.lowestObserved = c.observed
	}
	g.hasReports = true
	var at time.Time
	if at.UnmarshalText(c.updated) == nil && (g.oldestReport.IsZero() || at.Before(g.oldestReport)) {
		g.oldestReport = at
	}
}
