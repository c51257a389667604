package fleetapi

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// A fieldSet holds the members of an object that are shown, each with the shown members below it.
// An empty set below a member shows all of it. The nil set shows everything.
type fieldSet map[string]fieldSet

// fieldsOf returns the members of a type in JSON, each with those below it. Maps, times and raw JSON
// have none.
func fieldsOf(t reflect.Type) fieldSet {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	set := fieldSet{}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return set
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		set[name] = fieldsOf(f.Type)
	}
	return set
}

// resourceFields returns the fields of a resource, which are only read.
//
//nolint:gochecknoglobals // computed once
var resourceFields = sync.OnceValue(func() fieldSet { return fieldsOf(reflect.TypeFor[v1.Resource]()) })

// parseFields parses the parameter fields: names separated by commas, with dots into objects. A
// name followed by .* selects the whole object. The id is always included. No names select all
// fields.
func parseFields(given []string) (fieldSet, error) {
	known := resourceFields()
	set, names := fieldSet{"id": {}}, 0
	for name := range strings.SplitSeq(strings.Join(given, ","), ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if names++; names > maxFields {
			return nil, rest.NewQueryError("fields", "max", "", "names more than %d fields", maxFields)
		}
		if !set.addPath(known, strings.Split(strings.TrimSuffix(name, ".*"), ".")) {
			return nil, rest.NewQueryError("fields", "enum", name, "names %q, which is not a field of a resource", name)
		}
	}
	if names == 0 {
		return nil, nil
	}
	return set, nil
}

// addPath adds a path if it is a known one.
func (s fieldSet) addPath(known fieldSet, path []string) bool {
	below, ok := known[path[0]]
	if !ok {
		return false
	}
	if len(path) == 1 {
		s[path[0]] = fieldSet{}
		return true
	}
	old, had := s[path[0]]
	next := maps.Clone(old)
	if next == nil {
		next = fieldSet{}
	}
	if !next.addPath(below, path[1:]) {
		return false
	}
	if !had || len(old) > 0 { // otherwise all of it is shown already
		s[path[0]] = next
	}
	return true
}

// String returns the set in canonical form.
func (s fieldSet) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s(%s)", name, s[name])
	}
	return b.String()
}

// appendTo appends the fields of a record that the set shows.
func (s fieldSet) appendTo(b []byte, r *Record, k *kind) []byte {
	if s == nil {
		return appendRecord(b, r, k)
	}
	d := jsontext.NewDecoder(bytes.NewReader(appendRecord(nil, r, k)), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	shown, err := s.appendValue(b, d)
	if err != nil {
		panic(fmt.Errorf("show some fields of %s %q: %w", r.Kind, r.ID, err)) // appendRecord writes JSON
	}
	return shown
}

// appendValue appends the shown part of the decoder's next value. It applies the set to each
// element of a list.
func (s fieldSet) appendValue(b []byte, d *jsontext.Decoder) ([]byte, error) {
	switch {
	case len(s) > 0 && d.PeekKind() == jsontext.KindBeginObject:
		return s.appendObject(b, d)
	case len(s) > 0 && d.PeekKind() == jsontext.KindBeginArray:
		return s.appendArray(b, d)
	}
	v, err := d.ReadValue()
	return append(b, v...), err
}

func (s fieldSet) appendObject(b []byte, d *jsontext.Decoder) ([]byte, error) {
	if _, err := d.ReadToken(); err != nil {
		return b, err
	}
	b = append(b, '{')
	missing := maps.Clone(s)
	separator := ""
	for d.PeekKind() != jsontext.KindEndObject {
		name, err := d.ReadToken()
		if err != nil {
			return b, err
		}
		key := name.String()
		below, ok := s[key]
		if !ok {
			if err := d.SkipValue(); err != nil {
				return b, err
			}
			continue
		}
		delete(missing, key)
		b = append(appendText(append(b, separator...), key), ':')
		if b, err = below.appendValue(b, d); err != nil {
			return b, err
		}
		separator = ","
	}
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		b = append(appendText(append(b, separator...), key), ":null"...)
		separator = ","
	}
	_, err := d.ReadToken()
	return append(b, '}'), err
}

func (s fieldSet) appendArray(b []byte, d *jsontext.Decoder) ([]byte, error) {
	if _, err := d.ReadToken(); err != nil {
		return b, err
	}
	b = append(b, '[')
	for i := 0; d.PeekKind() != jsontext.KindEndArray; i++ {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = s.appendValue(b, d); err != nil {
			return b, err
		}
	}
	_, err := d.ReadToken()
	return append(b, ']'), err
}
