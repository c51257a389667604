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
	reported           bool
	lowest             int64     // lowest generation that a reporting adapter has observed
	oldest             time.Time // the oldest report of an adapter

	listed     int  // number of conditions
	unreadable bool // whether one of them has no readable type
}

// fillFromLegacyFormats fills in the fields of an item in the format of another era. Items of the Fleetloop API
// have a phase, and cost nothing here.
func (s *Scanner) fillFromLegacyFormats() {
	r := &s.item.Resource
	if r.LastUpdated.IsZero() && s.updatedAt != nil {
		s.parseTime(&r.LastUpdated, s.updatedAt, "status.updated_at")
	}
	if s.given.phase || s.conditions == nil || s.item.Fault.Skips() {
		return
	}
	s.gathered = gatheredStatus{}
	s.readConditions()
	if s.item.Fault.Skips() {
		return
	}
	g := &s.gathered
	switch {
	case g.unreadable:
		s.noteFault(FaultStatus, "status.conditions")
	case g.isToday:
		// Its generation is always that of the resource, and so has no information.
		s.fillFromSummary(&g.today)
		s.applyObserved(g.lowest)
	case g.wasBefore:
		s.fillFromSummary(&g.before)
		if g.reported {
			s.applyObserved(g.lowest)
		} else {
			s.applyObserved(g.before.observed)
		}
	case g.reported:
		r.Phase = phaseNotReady
		s.applyObserved(g.lowest)
		if r.LastUpdated.IsZero() {
			r.LastUpdated = g.oldest
		}
	case g.listed > 0:
		s.noteFault(FaultStatus, "status.conditions")
	case s.needsNoAdapter():
		// The resource waits for nothing, so only its age counts.
		r.Phase, r.ObservedGeneration = phaseReady, r.Generation
		s.parseTime(&r.LastUpdated, s.updated, "updated_time")
	}
}

// needsNoAdapter reports whether an item with an empty list of conditions is of a kind without
// required adapters. Only the public API has such items: it adds the conditions of all other kinds
// on creation. The status of its items contains only conditions.
func (s *Scanner) needsNoAdapter() bool {
	r := &s.item.Resource
	return s.item.Public && !s.given.observed && r.LastUpdated.IsZero() && r.LastTransition.IsZero()
}

// fillFromSummary takes the phase, and the times that the status lacks, from the summary condition.
func (s *Scanner) fillFromSummary(summary *statusCondition) {
	r := &s.item.Resource
	r.Phase = phaseNotReady
	if string(summary.status) == "True" {
		r.Phase = phaseReady
	}
	if r.LastUpdated.IsZero() {
		s.parseTime(&r.LastUpdated, summary.updated, "status.conditions.last_updated_time")
	}
	if r.LastTransition.IsZero() {
		s.parseTime(&r.LastTransition, summary.transition, "status.conditions.last_transition_time")
	}
}

// applyObserved takes the observed generation from the conditions, unless the status has one.
func (s *Scanner) applyObserved(generation int64) {
	if !s.given.observed {
		s.item.Resource.ObservedGeneration = generation
	}
}

// keepValue keeps a value for later parsing. It is part of the page.
func (s *Scanner) keepValue(to *[]byte) error {
	v, err := s.dec.ReadValue()
	if err != nil || v.Kind() == 'n' {
		return err
	}
	end := int(s.dec.InputOffset())
	*to = s.page[end-len(v) : end]
	return nil
}

// readConditions parses the stored conditions. They are valid JSON, because they have been read
// once; any other error in them is a fault of the item.
func (s *Scanner) readConditions() {
	page, outer := s.page, s.dec
	s.page, s.dec, s.innerBuf = s.conditions, s.inner, *bytes.NewBuffer(s.conditions)
	resetDecoder(s.inner, &s.innerBuf)
	defer func() { s.page, s.dec, s.innerBuf = page, outer, bytes.Buffer{} }()

	g := &s.gathered
	if s.dec.PeekKind() != '[' {
		g.unreadable = true
		return
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return
	}
	for s.dec.PeekKind() != ']' {
		s.condition = statusCondition{}
		g.listed++
		if kind := s.dec.PeekKind(); kind != '{' && kind != 'n' {
			g.unreadable = true
			if s.skipValue() != nil {
				return
			}
			continue
		}
		if err := s.readObject("status.conditions", (*Scanner).readConditionField); err != nil {
			return
		}
		s.gatherCondition()
	}
}

func (s *Scanner) readConditionField(name []byte) (err error) {
	c := &s.condition
	switch string(name) {
	case "type":
		c.kind, err = s.readConditionText("type")
	case "status":
		c.status, err = s.readConditionText("status")
	case "observed_generation", "observedGeneration":
		err = s.readConditionGeneration()
	case "last_updated_time", "lastUpdatedTime":
		c.updated, err = s.readConditionText("last_updated_time")
	case "last_transition_time", "lastTransitionTime":
		c.transition, err = s.readConditionText("last_transition_time")
	default:
		err = s.skipValue()
	}
	return err
}

func (s *Scanner) readConditionText(field string) ([]byte, error) {
	v, err := s.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	if kind := v.Kind(); kind != '"' {
		if kind != 'n' {
			s.condition.wrong = field
		}
		return nil, nil
	}
	return s.unquoteString(v), nil
}

func (s *Scanner) readConditionGeneration() error {
	v, err := s.dec.ReadValue()
	if err != nil || v.Kind() == 'n' {
		return err
	}
	n, ok := parseInt(v)
	if !ok {
		s.condition.wrong = "observed_generation"
	}
	s.condition.observed = n
	return nil
}

// gatherCondition adds a condition to the summary. Irrelevant conditions may have any content.
func (s *Scanner) gatherCondition() {
	c, g := &s.condition, &s.gathered
	switch {
	case string(c.kind) == summaryToday:
		g.today, g.isToday = *c, true
	case string(c.kind) == summaryBefore:
		g.before, g.wasBefore = *c, true
	case len(c.kind) > len(ofAdapter) && bytes.HasSuffix(c.kind, []byte(ofAdapter)):
		s.gatherReport(c)
	case c.wrong == "type":
		g.unreadable = true // it could be any condition
		return
	default:
		return
	}
	if c.wrong != "" {
		s.noteFault(FaultWrongType, "status.conditions."+c.wrong)
	}
}

// gatherReport adds the report of an adapter.
func (s *Scanner) gatherReport(c *statusCondition) {
	g := &s.gathered
	if !g.reported || c.observed < g.lowest {
		g.lowest = c.observed
	}
	g.reported = true
	var at time.Time
	if at.UnmarshalText(c.updated) == nil && (g.oldest.IsZero() || at.Before(g.oldest)) {
		g.oldest = at
	}
}
