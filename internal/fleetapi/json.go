package fleetapi

import (
	"bytes"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// appendRecordJSON appends a record in the form of a v1.Resource. It is written by hand because a page
// has hundreds of records: stored JSON is copied without parsing.
func appendRecordJSON(b []byte, record *Record, k *kind) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, record.ID...)
	b = append(b, `","kind":"`...)
	b = append(b, record.Kind...)
	b = append(b, `","name":`...)
	b = appendQuotedText(b, record.Name)
	b = append(b, `,"href":"`...)
	b = appendResourcePath(b, record, k)
	b = append(b, '"')
	labelled := len(record.Labels) > 2 // more than {}
	if labelled {
		b = append(b, `,"labels":`...)
		b = append(b, record.Labels...)
	}
	if len(record.Annotations) > 2 {
		b = append(b, `,"annotations":`...)
		b = append(b, record.Annotations...)
	}
	b = append(b, `,"metadata":{"name":`...)
	b = appendQuotedText(b, record.Name)
	if record.DisplayName != "" {
		b = append(b, `,"displayName":`...)
		b = appendQuotedText(b, record.DisplayName)
	}
	if labelled {
		b = append(b, `,"labels":`...)
		b = append(b, record.Labels...)
	}
	b = append(b, '}')
	if k.parent != nil {
		b = appendOwnerJSON(append(b, `,"ownerResource":`...), record, k.parent)
		b = appendOwnerJSON(append(b, `,"owner_references":`...), record, k.parent)
	}
	b = append(b, `,"spec":`...)
	b = append(b, record.Spec...)
	b = append(b, `,"generation":`...)
	b = strconv.AppendInt(b, record.Generation, 10)
	b = appendQuotedTime(append(b, `,"created_time":`...), record.CreatedTime)
	b = appendQuotedTime(append(b, `,"updated_time":`...), record.UpdatedTime)
	b = appendMemberIfSet(b, `,"created_by":`, record.CreatedBy)
	b = appendMemberIfSet(b, `,"updated_by":`, record.UpdatedBy)
	if record.IsBeingDeleted() {
		b = appendQuotedTime(append(b, `,"deleted_time":`...), record.DeletedTime)
	}
	b = appendMemberIfSet(b, `,"deleted_by":`, record.DeletedBy)
	return append(appendStatusJSON(append(b, `,"status":`...), &record.Status), '}')
}

func appendStatusJSON(b []byte, status *Status) []byte {
	b = append(b, `{"phase":"`...)
	b = append(b, status.Phase...)
	b = append(b, `","observed_generation":`...)
	b = strconv.AppendInt(b, status.ObservedGeneration, 10)
	b = appendQuotedTime(append(b, `,"last_updated_time":`...), status.LastUpdatedTime)
	b = appendQuotedTime(append(b, `,"last_transition_time":`...), status.LastTransitionTime)
	b = append(b, `,"conditions":`...)
	b = append(b, status.Conditions...)
	b = appendMemberIfSet(b, `,"shoot_status":`, string(status.ShootStatus))
	b = appendMemberIfSet(b, `,"shoot_status_message":`, status.ShootMessage)
	b = appendMemberIfSet(b, `,"sync_error":`, status.SyncError)
	return append(b, '}')
}

func appendOwnerJSON(b []byte, child *Record, parent *kind) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, child.ParentID...)
	b = append(b, `","kind":"`...)
	b = append(b, parent.name...)
	b = append(b, `","href":"`...)
	b = appendTopLevelPath(b, parent, child.ParentID)
	return append(b, `"}`...)
}

// appendResourcePath appends the path of a record; the path of a child leads through its parent.
func appendResourcePath(b []byte, record *Record, k *kind) []byte {
	if k.parent == nil {
		return appendTopLevelPath(b, k, record.ID)
	}
	b = appendTopLevelPath(b, k.parent, record.ParentID)
	b = append(b, '/')
	b = append(b, k.collection...)
	b = append(b, '/')
	return append(b, record.ID...)
}

func appendTopLevelPath(b []byte, k *kind, id string) []byte {
	b = append(b, v1.BasePath...)
	b = append(b, '/')
	b = append(b, k.collection...)
	b = append(b, '/')
	return append(b, id...)
}

func appendMemberIfSet(b []byte, prefix, text string) []byte {
	if text == "" {
		return b
	}
	return appendQuotedText(append(b, prefix...), text)
}

func appendQuotedText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text) // it fails only for invalid UTF-8, which it replaces; the store has none
	return b
}

func appendQuotedTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

// equalJSON reports whether two valid JSON values are equal. It ignores the order of members, white space, escapes and
// the notation of numbers. Numbers are compared as decimals of any size and never rounded.
func equalJSON(a, b []byte) bool {
	return bytes.Equal(a, b) || bytes.Equal(canonicalizeJSON(a), canonicalizeJSON(b))
}

// canonicalizeJSON returns a value in canonical form, or unchanged if it is not valid.
func canonicalizeJSON(value []byte) []byte {
	c := jsontext.Value(bytes.Clone(value))
	// Numbers stay unchanged here: different ones could become equal as doubles.
	if c.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) != nil {
		return value
	}
	return canonicalizeNumbers(c)
}

// canonicalizeNumbers rewrites the numbers of a valid value in canonical form.
func canonicalizeNumbers(value []byte) []byte {
	out := make([]byte, 0, len(value))
	for i := 0; i < len(value); {
		switch c := value[i]; {
		case c == '"':
			n := leadingJSONStringLength(value[i:])
			out = append(out, value[i:i+n]...)
			i += n
		case c == '-' || c >= '0' && c <= '9':
			n := 1
			for i+n < len(value) && bytes.IndexByte([]byte("0123456789.eE+-"), value[i+n]) >= 0 {
				n++
			}
			out = appendCanonicalNumber(out, value[i:i+n])
			i += n
		default:
			out = append(out, c)
			i++
		}
	}
	return out
}

func leadingJSONStringLength(value []byte) int {
	for i := 1; i < len(value); i++ {
		switch value[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(value)
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
