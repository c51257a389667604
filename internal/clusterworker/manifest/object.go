package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxProblems limits the problems in one error. The others appear after these are
// fixed.
const maxProblems = 8

// maxText is the longest text of the problems.
const maxText = 2000

// specProblems are the faults in the specs of one cluster.
type specProblems struct {
	where string // prefix of the problems that follow: names the spec being read
	list  []string
}

func (p *specProblems) addProblemf(format string, args ...any) {
	p.list = append(p.list, p.where+fmt.Sprintf(format, args...))
}

// joinFirstErrors returns all problems as one error, nil if there are none.
func (p *specProblems) joinFirstErrors() error {
	if len(p.list) == 0 {
		return nil
	}
	shown := p.list[:min(len(p.list), maxProblems)]
	text := strings.Join(shown, "; ")
	if len(text) > maxText { // a key can be as long as a whole spec
		text = text[:maxText] + " …"
	}
	if more := len(p.list) - len(shown); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return errors.New(strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")) // the database accepts nothing else
}

// A jsonType is the type of a JSON value, as worded in messages.
type jsonType string

const (
	anObject jsonType = "an object"
	aList    jsonType = "a list"
	aString  jsonType = "a string"
	aNumber  jsonType = "a number"
	aBoolean jsonType = "true or false"
	nothing  jsonType = "null"
)

// detectJSONType returns the kind of a valid value.
func detectJSONType(raw json.RawMessage) jsonType {
	switch text := strings.TrimLeft(string(raw), " \t\r\n"); {
	case text == "" || text[0] == 'n':
		return nothing
	case text[0] == '{':
		return anObject
	case text[0] == '[':
		return aList
	case text[0] == '"':
		return aString
	case text[0] == 't' || text[0] == 'f':
		return aBoolean
	default:
		return aNumber
	}
}

// A specObject is a JSON object that is read key by key. Absent and null values are empty.
// A value of a wrong type is a problem and then empty as well. Keys that are not read
// are ignored: other adapters read the same specs.
type specObject struct {
	path string
	keys map[string]json.RawMessage // by exact name
	p    *specProblems
}

// decodeObject reads an object; an absent one has no keys.
func decodeObject(problems *specProblems, path string, raw json.RawMessage) specObject {
	o := specObject{path: path, p: problems}
	if len(raw) == 0 {
		return o
	}
	if !json.Valid(raw) {
		problems.addProblemf("%s is not valid JSON", path)
		return o
	}
	if k := detectJSONType(raw); k != anObject && k != nothing {
		problems.addProblemf("%s must be an object, not %s", path, k)
		return o
	}
	if err := json.Unmarshal(raw, &o.keys); err != nil {
		problems.addProblemf("%s cannot be read: %v", path, err)
	}
	return o
}

// childPath returns the path of a key.
func (o specObject) childPath(key string) string { return o.path + "." + key }

// findValueByAnySpelling returns the value of a key under any of its spellings. Two different values
// are a problem, as the intended one is unknown.
func (o specObject) findValueByAnySpelling(keySpellings []string) (key string, raw json.RawMessage) {
	key = keySpellings[0]
	for _, s := range keySpellings {
		v, ok := o.keys[s]
		switch {
		case !ok || detectJSONType(v) == nothing:
		case raw == nil:
			key, raw = s, v
		case !equalJSON(raw, v):
			o.p.addProblemf("%s and %s have different values; set only one of them", o.childPath(key), o.childPath(s))
		}
	}
	return key, raw
}

func equalJSON(a, b json.RawMessage) bool {
	x, errX := canonicalizeJSON(a)
	y, errY := canonicalizeJSON(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// addWrongTypeProblem records a value of the wrong type.
func (o specObject) addWrongTypeProblem(key string, want, got jsonType) {
	hint := ""
	if want == aString && got == aNumber {
		hint = "; put it in quotes" // 1.30 would become 1.3
	}
	o.p.addProblemf("%s must be %s, not %s%s", o.childPath(key), want, got, hint)
}

// addMissingProblem records that a required value is missing.
func (o specObject) addMissingProblem(key, reason string) {
	o.p.addProblemf("%s is missing: %s", o.childPath(key), reason)
}

// readString reads a string.
func (o specObject) readString(keySpellings ...string) string {
	key, raw := o.findValueByAnySpelling(keySpellings)
	if raw == nil {
		return ""
	}
	var s string
	if k := detectJSONType(raw); k != aString || json.Unmarshal(raw, &s) != nil {
		o.addWrongTypeProblem(key, aString, k)
	}
	return s
}

// readNonNegativeInt reads a number. ok is false for an absent one.
func (o specObject) readNonNegativeInt(keySpellings ...string) (n int32, ok bool) {
	key, raw := o.findValueByAnySpelling(keySpellings)
	if raw == nil {
		return 0, false
	}
	if k := detectJSONType(raw); k != aNumber {
		o.addWrongTypeProblem(key, aNumber, k)
		return 0, false
	}
	i, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange) && i > 0:
		o.p.addProblemf("%s is too large", o.childPath(key))
	case i < 0:
		o.p.addProblemf("%s must not be negative", o.childPath(key))
	case err != nil:
		o.p.addProblemf("%s must be a whole number", o.childPath(key))
	default:
		return int32(i), true
	}
	return 0, false
}

// readObject reads an object.
func (o specObject) readObject(keySpellings ...string) specObject {
	key, raw := o.findValueByAnySpelling(keySpellings)
	return decodeObject(o.p, o.childPath(key), raw)
}

// readCanonicalObject reads an object that is passed on unchanged.
func (o specObject) readCanonicalObject(keySpellings ...string) json.RawMessage {
	key, raw := o.findValueByAnySpelling(keySpellings)
	if raw == nil {
		return nil
	}
	if k := detectJSONType(raw); k != anObject {
		o.addWrongTypeProblem(key, anObject, k)
		return nil
	}
	out, err := canonicalizeJSON(raw)
	if err != nil {
		o.p.addProblemf("%s cannot be read: %v", o.childPath(key), err)
	}
	return out
}

// readList reads a list.
func (o specObject) readList(key string) []json.RawMessage {
	key, raw := o.findValueByAnySpelling([]string{key})
	if raw == nil {
		return nil
	}
	var values []json.RawMessage
	if k := detectJSONType(raw); k != aList || json.Unmarshal(raw, &values) != nil {
		o.addWrongTypeProblem(key, aList, k)
	}
	return values
}

// readStringList reads a list of strings.
func (o specObject) readStringList(key string) []string {
	var out []string
	for i, v := range o.readList(key) {
		var s string
		if k := detectJSONType(v); k != aString || json.Unmarshal(v, &s) != nil {
			o.addWrongTypeProblem(fmt.Sprintf("%s[%d]", key, i), aString, k)
		}
		out = append(out, s)
	}
	return out
}

// readObjectList reads a list of objects.
func (o specObject) readObjectList(key string) []specObject {
	var out []specObject
	for i, v := range o.readList(key) {
		out = append(out, decodeObject(o.p, fmt.Sprintf("%s[%d]", o.childPath(key), i), v))
	}
	return out
}

// readStringMap reads an object with string values.
func (o specObject) readStringMap(key string) map[string]string {
	in := o.readObject(key)
	if len(in.keys) == 0 {
		return nil
	}
	out := make(map[string]string, len(in.keys))
	for _, k := range slices.Sorted(maps.Keys(in.keys)) {
		out[k] = in.readString(k)
	}
	return out
}
