package timeline

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/fleetloop/fleetloop/changeevent"
)

// DiffFields returns the fields in which two JSON objects differ, by path. Root begins each path.
// Lists of the same length are compared item by item; other lists are one field. An empty object
// counts as absent. Values that are not JSON are one field.
func DiffFields(root string, before, after json.RawMessage) []changeevent.FieldChange {
	if bytes.Equal(before, after) {
		return nil
	}
	b, errBefore := decodeObject(before)
	a, errAfter := decodeObject(after)
	if errBefore != nil || errAfter != nil {
		return []changeevent.FieldChange{{Field: root, Before: before, After: after}}
	}
	var d differ
	d.compareValues(root, b, a)
	return d.changes
}

// decodeObject decodes a value and keeps its numbers as written.
func decodeObject(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return map[string]any{}, nil
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(&value)
	return value, err
}

// unset is the value of an absent field. JSON has no such value.
type unset struct{}

// A differ collects the fields in which values differ.
type differ struct{ changes []changeevent.FieldChange }

func (d *differ) compareValues(path string, before, after any) {
	b, okBefore := membersOf(before)
	a, okAfter := membersOf(after)
	if okBefore && okAfter && len(b)+len(a) > 0 {
		all := maps.Clone(a)
		if all == nil {
			all = map[string]any{}
		}
		maps.Copy(all, b)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			d.compareValues(path+"."+key, memberOf(b, key), memberOf(a, key))
		}
		return
	}
	if lb, ok := before.([]any); ok {
		if la, ok := after.([]any); ok && len(la) == len(lb) {
			for i := range lb {
				d.compareValues(path+"["+strconv.Itoa(i)+"]", lb[i], la[i])
			}
			return
		}
	}
	if !reflect.DeepEqual(before, after) {
		d.changes = append(d.changes, changeevent.FieldChange{Field: path, Before: encodeField(before), After: encodeField(after)})
	}
}

// membersOf returns the members of an object, none for unset.
func membersOf(value any) (map[string]any, bool) {
	if (value == unset{}) {
		return nil, true
	}
	object, ok := value.(map[string]any)
	return object, ok
}

// memberOf returns a member of an object, or unset.
func memberOf(object map[string]any, key string) any {
	if value, ok := object[key]; ok {
		return value
	}
	return unset{}
}

// encodeField encodes a decoded value; unset is empty.
func encodeField(value any) json.RawMessage {
	if (value == unset{}) {
		return nil
	}
	raw, err := json.Marshal(value)
	if err != nil { // impossible: it was decoded from JSON
		return nil
	}
	return raw
}

// maxKeyDepth limits the prefixes of a path that are indexed. A longer path is found by its first
// steps, and as a whole.
const maxKeyDepth = 16

// fieldSearchKeys returns the search keys of changed fields: their paths and the paths of the enclosing
// fields, without list positions.
func fieldSearchKeys(changes []changeevent.FieldChange) []string {
	var keys []string
	for i := range changes {
		path := stripListPositions(changes[i].Field)
		keys = append(keys, path)
		for at, depth := 0, 0; depth < maxKeyDepth; depth++ {
			n := strings.IndexByte(path[at:], '.')
			if n < 0 {
				break
			}
			if n > 0 {
				keys = append(keys, path[:at+n])
			}
			at += n + 1
		}
	}
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(key string) bool { return key == "" })
}

// stripListPositions returns a path without list positions: spec.workers for spec.workers[0].
func stripListPositions(path string) string {
	var key strings.Builder
	for path != "" {
		begin := strings.IndexByte(path, '[')
		end := strings.IndexByte(path[begin+1:], ']')
		if begin < 0 || end < 0 {
			break
		}
		end += begin + 1
		if _, err := strconv.ParseUint(path[begin+1:end], 10, 32); err != nil {
			key.WriteString(path[:end+1])
		} else {
			key.WriteString(path[:begin])
		}
		path = path[end+1:]
	}
	key.WriteString(path)
	return key.String()
}
