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

// maxProblems is how many problems an error tells of. The others show when
// these are mended.
const maxProblems = 8

// maxText is how long their text can be.
const maxText = 2000

// problems are what is wrong with the specs of one cluster.
type problems struct {
	where string // before every one, until it is changed: whose spec is read
	list  []string
}

func (p *problems) add(format string, args ...any) {
	p.list = append(p.list, p.where+fmt.Sprintf(format, args...))
}

// err is nil if nothing is wrong.
func (p *problems) err() error {
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
	return errors.New(strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")) // the database takes nothing else
}

// A kind is what a JSON value is, as a message says it.
type kind string

const (
	anObject kind = "an object"
	aList    kind = "a list"
	aString  kind = "a string"
	aNumber  kind = "a number"
	aBoolean kind = "true or false"
	nothing  kind = "null"
)

// kindOf is the kind of a valid value.
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

// An object is a JSON object that is read key by key. What is absent or null
// is empty; what is of another type is a problem, and then empty, too. Keys that
// nobody asks for are not looked at: other adapters read the same specs.
type object struct {
	path string
	keys map[string]json.RawMessage // by their exact names
	p    *problems
}

// open reads an object; one that is absent has no keys.
func open(p *problems, path string, raw json.RawMessage) object {
	o := object{path: path, p: p}
	if len(raw) == 0 {
		return o
	}
	if !json.Valid(raw) {
		p.add("%s is not valid JSON", path)
		return o
	}
	if k := kindOf(raw); k != anObject && k != nothing {
		p.add("%s must be an object, not %s", path, k)
		return o
	}
	if err := json.Unmarshal(raw, &o.keys); err != nil {
		p.add("%s cannot be read: %v", path, err)
	}
	return o
}

// at is the path of a key.
func (o object) at(key string) string { return o.path + "." + key }

// value finds what a key has under any of its spellings. Two that differ are a
// problem: nobody could say which one is meant.
func (o object) value(spellings []string) (key string, raw json.RawMessage) {
	key = spellings[0]
	for _, s := range spellings {
		v, ok := o.keys[s]
		switch {
		case !ok || kindOf(v) == nothing:
		case raw == nil:
			key, raw = s, v
		case !same(raw, v):
			o.p.add("%s and %s have different values; set only one of them", o.at(key), o.at(s))
		}
	}
	return key, raw
}

func same(a, b json.RawMessage) bool {
	x, errX := canonical(a)
	y, errY := canonical(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// wrong notes that a value is not what it must be.
func (o object) wrong(key string, want, got kind) {
	hint := ""
	if want == aString && got == aNumber {
		hint = "; put it in quotes" // 1.30 would become 1.3
	}
	o.p.add("%s must be %s, not %s%s", o.at(key), want, got, hint)
}

// missing notes that there is nothing where something has to be.
func (o object) missing(key, why string) { o.p.add("%s is missing: %s", o.at(key), why) }

// text reads a string.
func (o object) text(spellings ...string) string {
	key, raw := o.value(spellings)
	if raw == nil {
		return ""
	}
	var s string
	if k := kindOf(raw); k != aString || json.Unmarshal(raw, &s) != nil {
		o.wrong(key, aString, k)
	}
	return s
}

// count reads a number of things, and whether there is one.
func (o object) count(spellings ...string) (n int32, ok bool) {
	key, raw := o.value(spellings)
	if raw == nil {
		return 0, false
	}
	if k := kindOf(raw); k != aNumber {
		o.wrong(key, aNumber, k)
		return 0, false
	}
	i, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange) && i > 0:
		o.p.add("%s is too large", o.at(key))
	case i < 0:
		o.p.add("%s must not be negative", o.at(key))
	case err != nil:
		o.p.add("%s must be a whole number", o.at(key))
	default:
		return int32(i), true
	}
	return 0, false
}

// object reads an object.
func (o object) object(spellings ...string) object {
	key, raw := o.value(spellings)
	return open(o.p, o.at(key), raw)
}

// opaque reads an object that is passed on.
func (o object) opaque(spellings ...string) json.RawMessage {
	key, raw := o.value(spellings)
	if raw == nil {
		return nil
	}
	if k := kindOf(raw); k != anObject {
		o.wrong(key, anObject, k)
		return nil
	}
	out, err := canonical(raw)
	if err != nil {
		o.p.add("%s cannot be read: %v", o.at(key), err)
	}
	return out
}

// list reads a list.
func (o object) list(key string) []json.RawMessage {
	key, raw := o.value([]string{key})
	if raw == nil {
		return nil
	}
	var values []json.RawMessage
	if k := kindOf(raw); k != aList || json.Unmarshal(raw, &values) != nil {
		o.wrong(key, aList, k)
	}
	return values
}

// texts reads a list of strings.
func (o object) texts(key string) []string {
	var out []string
	for i, v := range o.list(key) {
		var s string
		if k := kindOf(v); k != aString || json.Unmarshal(v, &s) != nil {
			o.wrong(fmt.Sprintf("%s[%d]", key, i), aString, k)
		}
		out = append(out, s)
	}
	return out
}

// objects reads a list of objects.
func (o object) objects(key string) []object {
	var out []object
	for i, v := range o.list(key) {
		out = append(out, open(o.p, fmt.Sprintf("%s[%d]", o.at(key), i), v))
	}
	return out
}

// textMap reads an object whose values are strings.
func (o object) textMap(key string) map[string]string {
	in := o.object(key)
	if len(in.keys) == 0 {
		return nil
	}
	out := make(map[string]string, len(in.keys))
	for _, k := range slices.Sorted(maps.Keys(in.keys)) {
		out[k] = in.text(k)
	}
	return out
}
