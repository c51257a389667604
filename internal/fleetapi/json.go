package fleetapi

import (
	"bytes"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// appendRecord appends a record in the form of a v1.Resource. It is written by hand because a page
// has hundreds of records: stored JSON is copied without parsing.
func appendRecord(b []byte, r *Record, k *kind) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, r.ID...)
	b = append(b, `","kind":"`...)
	b = append(b, r.Kind...)
	b = append(b, `","name":`...)
	b = appendText(b, r.Name)
	b = append(b, `,"href":"`...)
	b = appendHref(b, r, k)
	b = append(b, '"')
	labelled := len(r.Labels) > 2 // more than {}
	if labelled {
		b = append(b, `,"labels":`...)
		b = append(b, r.Labels...)
	}
	if len(r.Annotations) > 2 {
		b = append(b, `,"annotations":`...)
		b = append(b, r.Annotations...)
	}
	b = append(b, `,"metadata":{"name":`...)
	b = appendText(b, r.Name)
	if r.DisplayName != "" {
		b = append(b, `,"displayName":`...)
		b = appendText(b, r.DisplayName)
	}
	if labelled {
		b = append(b, `,"labels":`...)
		b = append(b, r.Labels...)
	}
	b = append(b, '}')
	if k.parent != nil {
		b = appendOwner(append(b, `,"ownerResource":`...), r, k.parent)
		b = appendOwner(append(b, `,"owner_references":`...), r, k.parent)
	}
	b = append(b, `,"spec":`...)
	b = append(b, r.Spec...)
	b = append(b, `,"generation":`...)
	b = strconv.AppendInt(b, r.Generation, 10)
	b = appendTime(append(b, `,"created_time":`...), r.CreatedTime)
	b = appendTime(append(b, `,"updated_time":`...), r.UpdatedTime)
	b = appendOptional(b, `,"created_by":`, r.CreatedBy)
	b = appendOptional(b, `,"updated_by":`, r.UpdatedBy)
	if r.Deleting() {
		b = appendTime(append(b, `,"deleted_time":`...), r.DeletedTime)
	}
	b = appendOptional(b, `,"deleted_by":`, r.DeletedBy)
	return append(appendStatus(append(b, `,"status":`...), &r.Status), '}')
}

func appendStatus(b []byte, s *Status) []byte {
	b = append(b, `{"phase":"`...)
	b = append(b, s.Phase...)
	b = append(b, `","observed_generation":`...)
	b = strconv.AppendInt(b, s.ObservedGeneration, 10)
	b = appendTime(append(b, `,"last_updated_time":`...), s.LastUpdatedTime)
	b = appendTime(append(b, `,"last_transition_time":`...), s.LastTransitionTime)
	b = append(b, `,"conditions":`...)
	b = append(b, s.Conditions...)
	b = appendOptional(b, `,"shoot_status":`, string(s.ShootStatus))
	b = appendOptional(b, `,"shoot_status_message":`, s.ShootMessage)
	b = appendOptional(b, `,"sync_error":`, s.SyncError)
	return append(b, '}')
}

func appendOwner(b []byte, r *Record, parent *kind) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, r.ParentID...)
	b = append(b, `","kind":"`...)
	b = append(b, parent.name...)
	b = append(b, `","href":"`...)
	b = appendPath(b, parent, r.ParentID)
	return append(b, `"}`...)
}

// appendHref appends the path of a record; the path of a child leads through its parent.
func appendHref(b []byte, r *Record, k *kind) []byte {
	if k.parent == nil {
		return appendPath(b, k, r.ID)
	}
	b = appendPath(b, k.parent, r.ParentID)
	b = append(b, '/')
	b = append(b, k.collection...)
	b = append(b, '/')
	return append(b, r.ID...)
}

func appendPath(b []byte, k *kind, id string) []byte {
	b = append(b, v1.BasePath...)
	b = append(b, '/')
	b = append(b, k.collection...)
	b = append(b, '/')
	return append(b, id...)
}

func appendOptional(b []byte, key, value string) []byte {
	if value == "" {
		return b
	}
	return appendText(append(b, key...), value)
}

func appendText(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // it fails only for invalid UTF-8, which it replaces; the store has none
	return b
}

func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

// sameJSON reports whether two valid JSON values are equal. It ignores the order of members, white
// space, escapes and the notation of numbers. Numbers are compared as decimals of any size and
// never rounded.
func sameJSON(a, b []byte) bool {
	return bytes.Equal(a, b) || bytes.Equal(canonicalJSON(a), canonicalJSON(b))
}

// canonicalJSON returns a value in canonical form, or unchanged if it is not valid.
func canonicalJSON(v []byte) []byte {
	c := jsontext.Value(bytes.Clone(v))
	// Numbers stay unchanged here: different ones could become equal as doubles.
	if c.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) != nil {
		return v
	}
	return canonicalNumbers(c)
}

// canonicalNumbers rewrites the numbers of a valid value in canonical form.
func canonicalNumbers(v []byte) []byte {
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); {
		switch c := v[i]; {
		case c == '"':
			n := quotedLen(v[i:])
			out = append(out, v[i:i+n]...)
			i += n
		case c == '-' || c >= '0' && c <= '9':
			n := 1
			for i+n < len(v) && bytes.IndexByte([]byte("0123456789.eE+-"), v[i+n]) >= 0 {
				n++
			}
			out = appendCanonicalNumber(out, v[i:i+n])
			i += n
		default:
			out = append(out, c)
			i++
		}
	}
	return out
}

func quotedLen(v []byte) int {
	for i := 1; i < len(v); i++ {
		switch v[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(v)
}

// appendCanonicalNumber appends a number as digits without zeros at either end, and a power of ten. A
// number whose exponent does not fit into 32 bits stays unchanged.
func appendCanonicalNumber(b, number []byte) []byte {
	mantissa, exponent := number, 0
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		e, err := strconv.ParseInt(string(number[i+1:]), 10, 32)
		if err != nil {
			return append(b, number...)
		}
		mantissa, exponent = number[:i], int(e)
	}
	mantissa, negative := bytes.CutPrefix(mantissa, []byte("-"))
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	digits := append(bytes.Clone(whole), fraction...)
	exponent -= len(fraction)
	digits = bytes.TrimLeft(digits, "0")
	trimmed := bytes.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	if len(trimmed) == 0 {
		return append(b, '0')
	}
	if negative {
		b = append(b, '-')
	}
	b = append(b, trimmed...)
	b = append(b, 'e')
	return strconv.AppendInt(b, int64(exponent), 10)
}
