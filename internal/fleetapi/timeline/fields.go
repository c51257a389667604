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

// DiffJSONFields returns the fields in which two JSON objects differ, by path. Root begins each path.
// Lists of the same length are compared item by item; other lists are one field. An empty object
// counts as absent. Values that are not JSON are one field.
func DiffJSONFields(rootPath string, before, after json.RawMessage) []changeevent.FieldChange {
	if bytes.Equal(before, after) {
		return nil
	}
	b, errBefore := decodeJSONKeepingNumbers(before)
	a, errAfter := decodeJSONKeepingNumbers(after)
	if errBefore != nil || errAfter != nil {
		return []changeevent.FieldChange{{Field: rootPath, Before: before, After: after}}
	}
	var d differ
	d.collectDifferences(rootPath, b, a)
	return d.changes
}

// decodeJSONKeepingNumbers decodes a value and keeps its numbers as written.
func decodeJSONKeepingNumbers(raw json.RawMessage) (decoded any, err error) {
	if len(raw) == 0 {
		return map[string]any{}, nil
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}

// unset is the value of an absent field. JSON has no such value.
type unset struct{}

// A differ collects the fields in which values differ.
type differ struct{ changes []changeevent.FieldChange }

func (d *differ) collectDifferences(path string, before, after any) {
	b, okBefore := asObjectMembers(before)
	a, okAfter := asObjectMembers(after)
	if okBefore && okAfter && len(b)+len(a) > 0 {
		all := maps.Clone(a)
		if all == nil {
			all = map[string]any{}
		}
		maps.Copy(all, b)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			d.collectDifferences(path+"."+key, memberOrUnset(b, key), memberOrUnset(a, key))
		}
		return
	}
	if lb, ok := before.([]any); ok {
		if la, ok := after.([]any); ok && len(la) == len(lb) {
			for i := range lb {
				d.collectDifferences(path+"["+strconv.Itoa(i)+"]", lb[i], la[i])
			}
			return
		}
	}
	if !reflect.DeepEqual(before, after) {
		d.changes = append(d.changes, changeevent.FieldChange{Field: path, Before: encodeIfPresent(before), After: encodeIfPresent(after)})
	}
}

// asObjectMembers returns the members of an object, none for unset.
func asObjectMembers(value any) (members map[string]any, isObject bool) {
	if (value == unset{}) {
		return nil, true
	}
	object, ok := value.(map[string]any)
	return object, ok
}

// memberOrUnset returns a member of an object, or unset.
func memberOrUnset(object map[string]any, key string) any {
	if value, ok := object[key]; ok {
		return value
	}
	return unset{}
}

// encodeIfPresent encodes a decoded value; unset is empty.
func encodeIfPresent(value any) json.RawMessage {
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

// fieldPathsWithParents returns the search keys of changed fields: their paths and the paths of the enclosing
// fields, without list positions.
func fieldPathsWithParents(changes []changeevent.FieldChange) []string {
	var keys []string
	for i := range changes {
		path := stripListIndexes(changes[i].Field)
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

// stripListIndexes returns a path without list positions: spec.workers for spec.workers[0].
func stripListIndexes(path string) string {
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
