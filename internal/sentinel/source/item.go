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

	item             Item
	given            givenFields
	created, updated []byte // see parseFallbackTimes

	// See fillFromLegacyFormats.
	conditions, updatedAt []byte
	legacy                conditionReader
}

// givenFields says which significant fields an item has. Null counts as missing.
type givenFields struct{ phase, observed, href, createdBy bool }

// readItem reads the next value into r.item.
func (r *itemReader) readItem() error {
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
	if err := r.in.readObject(r.readItemField); err != nil {
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

// parseFallbackTimes parses the times that are used only if no better one exists: most resources never need
// them.
func (r *itemReader) parseFallbackTimes() {
	res := &r.item.Resource
	if res.Generation > res.ObservedGeneration || res.LastUpdated.IsZero() || res.LastTransition.IsZero() {
		r.parseTime(&res.Created, r.created, "created_time")
		r.parseTime(&res.Updated, r.updated, "updated_time")
	}
}

// readObject calls readField for each name of the next object. Null counts as an object without fields;
// anything else is a fault of the item.
func (r *itemReader) readObject(path string, readField func(name []byte) error) error {
	kind := r.in.dec.PeekKind()
	if kind == '{' {
		return r.in.readObject(readField)
	}
	r.wrongUnless(kind == 'n', path)
	return r.in.skipValue()
}

func (r *itemReader) readItemField(name []byte) (err error) {
	res := &r.item.Resource
	switch string(name) {
	case "id":
		r.item.ID, err = r.readString("id")
		return err
	case "generation":
		_, err = r.readInteger(&res.Generation, "generation")
		return err
	case "status":
		return r.readObject("status", r.readStatusField)
	case "created_time", "createdTime":
		r.created, err = r.readString("created_time")
		return err
	case "updated_time", "updatedTime":
		r.updated, err = r.readString("updated_time")
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
			return r.readObject("metadata", r.readMetadataField)
		}
	}
	return r.in.skipValue()
}

func (r *itemReader) readStatusField(name []byte) (err error) {
	res := &r.item.Resource
	switch string(name) {
	case "phase":
		v, err := r.readString("status.phase")
		res.Phase, r.given.phase = r.words.intern(v), v != nil
		return err
	case "observed_generation", "observedGeneration":
		r.given.observed, err = r.readInteger(&res.ObservedGeneration, "status.observed_generation")
		return err
	case "last_updated_time", "lastUpdatedTime":
		return r.readTime(&res.LastUpdated, "status.last_updated_time")
	case "last_transition_time", "lastTransitionTime":
		return r.readTime(&res.LastTransition, "status.last_transition_time")
	case "updated_at", "updatedAt":
		r.updatedAt, err = r.readString("status.updated_at")
		return err
	case "conditions":
		return r.keepConditions()
	}
	return r.in.skipValue()
}

func (r *itemReader) readMetadataField(name []byte) error {
	if string(name) == "labels" {
		return r.readLabels(&r.item.Labels.meta, "metadata.labels")
	}
	return r.in.skipValue()
}

// readString reads a string; null counts as the empty string.
func (r *itemReader) readString(path string) ([]byte, error) {
	v, err := r.in.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	if k := v.Kind(); k != '"' {
		r.wrongUnless(k == 'n', path)
		return nil, nil
	}
	text := r.in.unquoteString(v)
	if !utf8.Valid(text) {
		text = unescapeString(v)
	}
	return text, nil
}

// readInteger reads an integer, and reports whether there is one; null counts as 0 and none.
func (r *itemReader) readInteger(to *int64, path string) (given bool, err error) {
	v, err := r.in.dec.ReadValue()
	if err != nil {
		return false, err
	}
	if v.Kind() == 'n' {
		*to = 0
		return false, nil
	}
	n, ok := parseInt(v)
	r.wrongUnless(ok, path)
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

func (r *itemReader) readTime(to *time.Time, path string) error {
	v, err := r.readString(path)
	*to = time.Time{} // the last of duplicate values counts
	if err == nil {
		r.parseTime(to, v, path)
	}
	return err
}

// parseTime does not change the time if v is not a time.
func (r *itemReader) parseTime(to *time.Time, v []byte, path string) {
	if len(v) == 0 {
		return
	}
	var t time.Time
	if t.UnmarshalText(v) != nil {
		r.noteFault(FaultTime, path)
		return
	}
	*to = t
}

func (r *itemReader) readLabels(to *[]label, path string) error {
	r.item.HasLabels = true
	*to = (*to)[:0]
	return r.readObject(path, func(key []byte) error {
		value, err := r.readString("labels")
		*to = append(*to, label{key: key, value: value})
		return err
	})
}

func (r *itemReader) wrongUnless(ok bool, path string) {
	if !ok {
		r.noteFault(FaultWrongType, path)
	}
}

// noteFault records a fault. It keeps the first fault that skips the item.
func (r *itemReader) noteFault(f Fault, path string) {
	if !r.item.Fault.Skips() {
		r.item.Fault, r.item.Field = f, path
	}
}
