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

// problems are the faults in the specs of one cluster.
type problems struct {
	where string // prefix of the problems that follow: names the spec being read
	list  []string
}

func (p *problems) addf(format string, args ...any) {
	p.list = append(p.list, p.where+fmt.Sprintf(format, args...))
}

// joinErrors returns all problems as one error, nil if there are none.
func (p *problems) joinErrors() error {
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

// A kind is the type of a JSON value, as worded in messages.
type kind string

const (
	anObject kind = "an object"
	aList    kind = "a list"
	aString  kind = "a string"
	aNumber  kind = "a number"
	aBoolean kind = "true or false"
	nothing  kind = "null"
)

// kindOf returns the kind of a valid value.
func kindOf(raw json.RawMessage) kind {
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

// An object is a JSON object that is read key by key. Absent and null values are empty.
// A value of a wrong type is a problem and then empty as well. Keys that are not read
// are ignored: other adapters read the same specs.
type object struct {
	path string
	keys map[string]json.RawMessage // by exact name
	p    *problems
}

// openObject reads an object; an absent one has no keys.
func openObject(p *problems, path string, raw json.RawMessage) object {
	o := object{path: path, p: p}
	if len(raw) == 0 {
		return o
	}
	if !json.Valid(raw) {
		p.addf("%s is not valid JSON", path)
		return o
	}
	if k := kindOf(raw); k != anObject && k != nothing {
		p.addf("%s must be an object, not %s", path, k)
		return o
	}
	if err := json.Unmarshal(raw, &o.keys); err != nil {
		p.addf("%s cannot be read: %v", path, err)
	}
	return o
}

// pathOf returns the path of a key.
func (o object) pathOf(key string) string { return o.path + "." + key }

// findValue returns the value of a key under any of its spellings. Two different values
// are a problem, as the intended one is unknown.
func (o object) findValue(spellings []string) (key string, raw json.RawMessage) {
	key = spellings[0]
	for _, s := range spellings {
		v, ok := o.keys[s]
		switch {
		case !ok || kindOf(v) == nothing:
		case raw == nil:
			key, raw = s, v
		case !equalJSON(raw, v):
			o.p.addf("%s and %s have different values; set only one of them", o.pathOf(key), o.pathOf(s))
		}
	}
	return key, raw
}

func equalJSON(a, b json.RawMessage) bool {
	x, errX := canonicalJSON(a)
	y, errY := canonicalJSON(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// addWrongType records a value of the wrong type.
func (o object) addWrongType(key string, want, got kind) {
	hint := ""
	if want == aString && got == aNumber {
		hint = "; put it in quotes" // 1.30 would become 1.3
	}
	o.p.addf("%s must be %s, not %s%s", o.pathOf(key), want, got, hint)
}

// addMissing records that a required value is missing.
func (o object) addMissing(key, why string) { o.p.addf("%s is missing: %s", o.pathOf(key), why) }

// readText reads a string.
func (o object) readText(spellings ...string) string {
	key, raw := o.findValue(spellings)
	if raw == nil {
		return ""
	}
	var s string
	if k := kindOf(raw); k != aString || json.Unmarshal(raw, &s) != nil {
		o.addWrongType(key, aString, k)
	}
	return s
}

// readCount reads a number. ok is false for an absent one.
func (o object) readCount(spellings ...string) (n int32, ok bool) {
	key, raw := o.findValue(spellings)
	if raw == nil {
		return 0, false
	}
	if k := kindOf(raw); k != aNumber {
		o.addWrongType(key, aNumber, k)
		return 0, false
	}
	i, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange) && i > 0:
		o.p.addf("%s is too large", o.pathOf(key))
	case i < 0:
		o.p.addf("%s must not be negative", o.pathOf(key))
	case err != nil:
		o.p.addf("%s must be a whole number", o.pathOf(key))
	default:
		return int32(i), true
	}
	return 0, false
}

// readObject reads an object.
func (o object) readObject(spellings ...string) object {
	key, raw := o.findValue(spellings)
	return openObject(o.p, o.pathOf(key), raw)
}

// readOpaque reads an object that is passed on unchanged.
func (o object) readOpaque(spellings ...string) json.RawMessage {
	key, raw := o.findValue(spellings)
	if raw == nil {
		return nil
	}
	if k := kindOf(raw); k != anObject {
		o.addWrongType(key, anObject, k)
		return nil
	}
	out, err := canonicalJSON(raw)
	if err != nil {
		o.p.addf("%s cannot be read: %v", o.pathOf(key), err)
	}
	return out
}

// readList reads a list.
func (o object) readList(key string) []json.RawMessage {
	key, raw := o.findValue([]string{key})
	if raw == nil {
		return nil
	}
	var values []json.RawMessage
	if k := kindOf(raw); k != aList || json.Unmarshal(raw, &values) != nil {
		o.addWrongType(key, aList, k)
	}
	return values
}

// readTexts reads a list of strings.
func (o object) readTexts(key string) []string {
	var out []string
	for i, v := range o.readList(key) {
		var s string
		if k := kindOf(v); k != aString || json.Unmarshal(v, &s) != nil {
			o.addWrongType(fmt.Sprintf("%s[%d]", key, i), aString, k)
		}
		out = append(out, s)
	}
	return out
}

// readObjects reads a list of objects.
func (o object) readObjects(key string) []object {
	var out []object
	for i, v := range o.readList(key) {
		out = append(out, openObject(o.p, fmt.Sprintf("%s[%d]", o.pathOf(key), i), v))
	}
	return out
}

// readTextMap reads an object with string values.
func (o object) readTextMap(key string) map[string]string {
	in := o.readObject(key)
	if len(in.keys) == 0 {
		return nil
	}
	out := make(map[string]string, len(in.keys))
	for _, k := range slices.Sorted(maps.Keys(in.keys)) {
		out[k] = in.readText(k)
	}
	return out
}
