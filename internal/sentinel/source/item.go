package source

import (
	"bytes"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

// An itemReader reads one item after the other into one reused struct.
type itemReader struct {
	in         *jsonReader
	wantLabels bool
	words      internedWords

	item  Item
	given givenFields

	// created and updated are texts for parseFallbackTimes.
	created, updated []byte

	// These are used by fillFromLegacyFormats.
	conditions, updatedAt []byte
	legacy                conditionReader
}

// givenFields says which significant fields an item has. Null counts as missing.
type givenFields struct{ phase, observed, href, createdBy bool }

// readNextItem reads the next value into r.item.
func (r *itemReader) readNextItem() error {
	it := &r.item
	it.ID = nil
	it.Resource = decision.Resource{}
	it.Fault, it.Field = FaultNone, ""
	it.HasLabels, it.Public = false, false
	it.Labels.own, it.Labels.meta = it.Labels.own[:0], it.Labels.meta[:0]
	r.created, r.updated, r.conditions, r.updatedAt = nil, nil, nil, nil
	r.given = givenFields{}

	if r.in.dec.PeekKind() != '{' {
		it.Fault = FaultNotObject
		return r.in.skipValue()
	}
	start := r.in.dec.InputOffset()
	if err := r.in.readObjectFields(r.readItemField); err != nil {
		return err
	}
	raw := r.in.text[start:r.in.dec.InputOffset()]
	it.Resource.Raw = raw[bytes.IndexByte(raw, '{'):] // without the separator from the item before
	it.Public = r.given.href && r.given.createdBy
	r.fillFromLegacyFormats()
	r.parseFallbackTimes()
	if len(it.ID) == 0 && !it.Fault.Skips() {
		it.Fault, it.Field = FaultNoID, "id"
	}
	return nil
}

// parseFallbackTimes parses the times that are used only if no better one exists: most resources
// never need them.
func (r *itemReader) parseFallbackTimes() {
	res := &r.item.Resource
	isObserved := res.Generation <= res.ObservedGeneration
	if !isObserved || res.LastUpdated.IsZero() || res.LastTransition.IsZero() {
		r.parseTimeOrRecordFault(&res.Created, r.created, "created_time")
		r.parseTimeOrRecordFault(&res.Updated, r.updated, "updated_time")
	}
}

// readObjectOrNull calls readField for each name of the next object. Null counts as an object
// without fields; anything else is a fault of the item.
func (r *itemReader) readObjectOrNull(path string, readField func(name []byte) error) error {
	kind := r.in.dec.PeekKind()
	if kind == '{' {
		return r.in.readObjectFields(readField)
	}
	r.recordWrongTypeUnless(kind == 'n', path)
	return r.in.skipValue()
}

func (r *itemReader) readItemField(name []byte) (err error) {
	res := &r.item.Resource
	switch string(name) {
	case "id":
		r.item.ID, err = r.readStringOrRecordFault("id")
		return err
	case "generation":
		_, err = r.readIntegerOrRecordFault(&res.Generation, "generation")
		return err
	case "status":
		return r.readObjectOrNull("status", r.readStatusField)
	case "created_time", "createdTime":
		r.created, err = r.readStringOrRecordFault("created_time")
		return err
	case "updated_time", "updatedTime":
		r.updated, err = r.readStringOrRecordFault("updated_time")
		return err
	case "href":
		r.given.href = true
	case "created_by", "createdBy":
		r.given.createdBy = true
	case "labels":
		if r.wantLabels {
			return r.readLabels(&r.item.Labels.own, "labels")
		}
	case "metadata":
		if r.wantLabels {
			return r.readObjectOrNull("metadata", r.readMetadataField)
		}
	}
	return r.in.skipValue()
}

func (r *itemReader) readStatusField(name []byte) (err error) {
	res := &r.item.Resource
	switch string(name) {
	case "phase":
		v, err := r.readStringOrRecordFault("status.phase")
		res.Phase, r.given.phase = r.words.internString(v), v != nil
		return err
	case "observed_generation", "observedGeneration":
		r.given.observed, err = r.readIntegerOrRecordFault(&res.ObservedGeneration, "status.observed_generation")
		return err
	case "last_updated_time", "lastUpdatedTime":
		return r.readTimeOrRecordFault(&res.LastUpdated, "status.last_updated_time")
	case "last_transition_time", "lastTransitionTime":
		return r.readTimeOrRecordFault(&res.LastTransition, "status.last_transition_time")
	case "updated_at", "updatedAt":
		r.updatedAt, err = r.readStringOrRecordFault("status.updated_at")
		return err
	case "conditions":
		return r.keepRawConditions()
	}
	return r.in.skipValue()
}

func (r *itemReader) readMetadataField(name []byte) error {
	if string(name) == "labels" {
		return r.readLabels(&r.item.Labels.meta, "metadata.labels")
	}
	return r.in.skipValue()
}

// readStringOrRecordFault reads a string; null counts as the empty string.
func (r *itemReader) readStringOrRecordFault(path string) (value []byte, err error) {
	v, err := r.in.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	if k := v.Kind(); k != '"' {
		r.recordWrongTypeUnless(k == 'n', path)
		return nil, nil
	}
	text := r.in.unquoteLastString(v)
	if !utf8.Valid(text) {
		text = unescapeString(v) // replaces invalid Unicode
	}
	return text, nil
}

// readIntegerOrRecordFault reads an integer, and reports whether there is one; null counts as 0 and none.
func (r *itemReader) readIntegerOrRecordFault(target *int64, path string) (given bool, err error) {
	v, err := r.in.dec.ReadValue()
	if err != nil {
		return false, err
	}
	if v.Kind() == 'n' {
		*target = 0
		return false, nil
	}
	n, ok := parseJSONInteger(v)
	r.recordWrongTypeUnless(ok, path)
	*target = n
	return true, nil
}

// parseJSONInteger parses a JSON number that is an integer in any notation.
func parseJSONInteger(number []byte) (n int64, ok bool) {
	if n, err := strconv.ParseInt(string(number), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(number), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
		return 0, false
	}
	return int64(f), true
}

// readTimeOrRecordFault reads a time; null and an invalid time count as the zero time.
func (r *itemReader) readTimeOrRecordFault(target *time.Time, path string) error {
	text, err := r.readStringOrRecordFault(path)
	*target = time.Time{} // the last of duplicate values counts
	if err != nil {
		return err
	}
	r.parseTimeOrRecordFault(target, text, path)
	return nil
}

// parseTimeOrRecordFault parses a time into target. It does not change the target if the text is empty
// or not a time.
func (r *itemReader) parseTimeOrRecordFault(target *time.Time, text []byte, path string) {
	if len(text) == 0 {
		return
	}
	var t time.Time
	if t.UnmarshalText(text) != nil {
		r.recordFault(FaultTime, path)
		return
	}
	*target = t
}

func (r *itemReader) readLabels(target *[]label, path string) error {
	r.item.HasLabels = true
	*target = (*target)[:0]
	return r.readObjectOrNull(path, func(key []byte) error {
		value, err := r.readStringOrRecordFault("labels")
		*target = append(*target, label{key: key, value: value})
		return err
	})
}

func (r *itemReader) recordWrongTypeUnless(ok bool, path string) {
	if !ok {
		r.recordFault(FaultWrongType, path)
	}
}

// recordFault records a fault. It keeps the first fault that skips the item.
func (r *itemReader) recordFault(fault Fault, path string) {
	if !r.item.Fault.Skips() {
		r.item.Fault, r.item.Field = fault, path
	}
}
