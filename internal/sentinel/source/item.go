package source

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

// readItem reads the next value of the array into s.item.
func (s *Scanner) readItem() error {
	it := &s.item
	it.ID = nil
	it.Resource = decision.Resource{}
	it.Fault, it.Field = FaultNone, ""
	it.HasLabels, it.Public = false, false
	it.Labels.own, it.Labels.meta = it.Labels.own[:0], it.Labels.meta[:0]
	s.created, s.updated, s.conditions, s.updatedAt = nil, nil, nil, nil
	s.given = givenFields{}

	if s.dec.PeekKind() != '{' {
		it.Fault = FaultNotObject
		return s.skipValue()
	}
	start := int(s.dec.InputOffset())
	if err := s.readObject("", (*Scanner).readItemField); err != nil {
		return err
	}
	it.Resource.Raw = trimToObject(s.page[start:s.dec.InputOffset()])
	it.Public = s.given.href && s.given.createdBy
	s.fillFromLegacyFormats()
	s.parseFallbackTimes()
	if len(it.ID) == 0 && !it.Fault.Skips() {
		it.Fault, it.Field = FaultNoID, "id"
	}
	return nil
}

// parseFallbackTimes parses the times that are used only if no better one exists: most resources never need
// them.
func (s *Scanner) parseFallbackTimes() {
	r := &s.item.Resource
	if r.Generation > r.ObservedGeneration || r.LastUpdated.IsZero() || r.LastTransition.IsZero() {
		s.parseTime(&r.Created, s.created, "created_time")
		s.parseTime(&r.Updated, s.updated, "updated_time")
	}
}

// trimToObject removes separators between two items.
func trimToObject(raw []byte) []byte {
	for raw[0] != '{' {
		raw = raw[1:]
	}
	return raw
}

// readObject calls readField for each name of the next object. Null counts as an object without fields;
// anything else is a fault of the item.
func (s *Scanner) readObject(path string, readField func(s *Scanner, name []byte) error) error {
	if kind := s.dec.PeekKind(); kind != '{' {
		s.wrongUnless(kind == 'n', path)
		return s.skipValue()
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	for s.dec.PeekKind() != '}' {
		name, err := s.readName()
		if err != nil {
			return err
		}
		if err := readField(s, name); err != nil {
			return err
		}
	}
	_, err := s.dec.ReadToken()
	return err
}

func (s *Scanner) readItemField(name []byte) error {
	r := &s.item.Resource
	switch string(name) {
	case "id":
		return s.readID()
	case "generation":
		_, err := s.readInteger(&r.Generation, "generation")
		return err
	case "status":
		return s.readObject("status", (*Scanner).readStatusField)
	case "created_time", "createdTime":
		return s.keepTime(&s.created, "created_time")
	case "updated_time", "updatedTime":
		return s.keepTime(&s.updated, "updated_time")
	case "href":
		s.given.href = true
	case "created_by", "createdBy":
		s.given.createdBy = true
	case "labels":
		if s.wantLabels {
			return s.readLabels(&s.item.Labels.own, "labels")
		}
	case "metadata":
		if s.wantLabels {
			return s.readObject("metadata", (*Scanner).readMetadataField)
		}
	}
	return s.skipValue()
}

func (s *Scanner) readStatusField(name []byte) (err error) {
	r := &s.item.Resource
	switch string(name) {
	case "phase":
		return s.readPhase()
	case "observed_generation", "observedGeneration":
		s.given.observed, err = s.readInteger(&r.ObservedGeneration, "status.observed_generation")
		return err
	case "last_updated_time", "lastUpdatedTime":
		return s.readTime(&r.LastUpdated, "status.last_updated_time")
	case "last_transition_time", "lastTransitionTime":
		return s.readTime(&r.LastTransition, "status.last_transition_time")
	case "updated_at", "updatedAt":
		return s.keepTime(&s.updatedAt, "status.updated_at")
	case "conditions":
		return s.keepValue(&s.conditions)
	}
	return s.skipValue()
}

func (s *Scanner) readMetadataField(name []byte) error {
	if string(name) == "labels" {
		return s.readLabels(&s.item.Labels.meta, "metadata.labels")
	}
	return s.skipValue()
}

func (s *Scanner) readID() (err error) {
	s.item.ID, err = s.readString("id")
	return err
}

func (s *Scanner) readPhase() error {
	v, err := s.readString("status.phase")
	s.item.Resource.Phase, s.given.phase = s.words.intern(v), v != nil
	return err
}

// readString reads a string; null counts as the empty string.
func (s *Scanner) readString(path string) ([]byte, error) {
	v, err := s.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	if k := v.Kind(); k != '"' {
		s.wrongUnless(k == 'n', path)
		return nil, nil
	}
	text := s.unquoteString(v)
	if !utf8.Valid(text) {
		text = unescapeString(v)
	}
	return text, nil
}

// readInteger reads an integer, and reports whether there is one; null counts as 0 and none.
func (s *Scanner) readInteger(to *int64, path string) (given bool, err error) {
	v, err := s.dec.ReadValue()
	if err != nil {
		return false, err
	}
	if v.Kind() == 'n' {
		*to = 0
		return false, nil
	}
	n, ok := parseInt(v)
	s.wrongUnless(ok, path)
	*to = n
	return true, nil
}

// parseInt parses a JSON number that is an integer in any notation.
func parseInt(v []byte) (n int64, ok bool) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
		return 0, false
	}
	return int64(f), true
}

func (s *Scanner) readTime(to *time.Time, path string) error {
	v, err := s.readString(path)
	*to = time.Time{} // the last of duplicate values counts
	if err == nil {
		s.parseTime(to, v, path)
	}
	return err
}

// parseTime does not change the time if v is not a time.
func (s *Scanner) parseTime(to *time.Time, v []byte, path string) {
	if len(v) == 0 {
		return
	}
	var t time.Time
	if t.UnmarshalText(v) != nil {
		s.noteFault(FaultTime, path)
		return
	}
	*to = t
}

// keepTime stores a time for parseFallbackTimes.
func (s *Scanner) keepTime(to *[]byte, path string) (err error) {
	*to, err = s.readString(path)
	return err
}

func (s *Scanner) readLabels(to *[]label, path string) error {
	s.item.HasLabels = true
	*to = (*to)[:0]
	s.into = to
	return s.readObject(path, (*Scanner).readLabelField)
}

func (s *Scanner) readLabelField(key []byte) error {
	value, err := s.readString("labels")
	*s.into = append(*s.into, label{key: key, value: value})
	return err
}

func (s *Scanner) wrongUnless(ok bool, path string) {
	if !ok {
		s.noteFault(FaultWrongType, path)
	}
}

// noteFault records a fault. It keeps the first fault that skips the item.
func (s *Scanner) noteFault(f Fault, path string) {
	if !s.item.Fault.Skips() {
		s.item.Fault, s.item.Field = f, path
	}
}
