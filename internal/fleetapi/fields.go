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

// A fieldSelection holds the members of an object that are shown, each with the shown members below it.
// An empty set below a member shows all of it. The nil set shows everything.
type fieldSelection map[string]fieldSelection

// listJSONFields returns the members of a type in JSON, each with those below it. Maps, times and raw JSON have none.
func listJSONFields(t reflect.Type) fieldSelection {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	set := fieldSelection{}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return set
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		set[name] = listJSONFields(f.Type)
	}
	return set
}

// resourceFields returns the fields of a resource, which are only read.
//
//nolint:gochecknoglobals // computed once
var resourceFields = sync.OnceValue(func() fieldSelection { return listJSONFields(reflect.TypeFor[v1.Resource]()) })

// parseFieldsParameter parses the parameter fields: names separated by commas, with dots into objects. A name followed
// by .* selects the whole object. The id is always included. No names select all fields.
func parseFieldsParameter(values []string) (fieldSelection, error) {
	known := resourceFields()
	set, names := fieldSelection{"id": {}}, 0
	for name := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if names++; names > maxFields {
			return nil, rest.NewQueryError("fields", "max", "", "names more than %d fields", maxFields)
		}
		if !set.addPathIfKnown(known, strings.Split(strings.TrimSuffix(name, ".*"), ".")) {
			return nil, rest.NewQueryError("fields", "enum", name, "names %q, which is not a field of a resource", name)
		}
	}
	if names == 0 {
		return nil, nil
	}
	return set, nil
}

func (s fieldSelection) addPathIfKnown(known fieldSelection, path []string) (added bool) {
	below, ok := known[path[0]]
	if !ok {
		return false
	}
	if len(path) == 1 {
		s[path[0]] = fieldSelection{}
		return true
	}
	old, had := s[path[0]]
	next := maps.Clone(old)
	if next == nil {
		next = fieldSelection{}
	}
	if !next.addPathIfKnown(below, path[1:]) {
		return false
	}
	if !had || len(old) > 0 { // otherwise all of it is shown already
		s[path[0]] = next
	}
	return true
}

// String returns the set in canonical form.
func (s fieldSelection) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s(%s)", name, s[name])
	}
	return b.String()
}

// appendRecordFields appends the fields of a record that the set shows.
func (s fieldSelection) appendRecordFields(b []byte, record *Record, k *kind) []byte {
	if s == nil {
		return appendRecordJSON(b, record, k)
	}
	d := jsontext.NewDecoder(
		bytes.NewReader(appendRecordJSON(nil, record, k)),
		jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true),
	)
	shown, err := s.appendNextValue(b, d)
	if err != nil {
		panic(fmt.Errorf("show some fields of %s %q: %w", record.Kind, record.ID, err)) // appendRecordJSON writes JSON
	}
	return shown
}

// appendNextValue appends the shown part of the decoder's next value. It applies the set to each element of a list.
func (s fieldSelection) appendNextValue(b []byte, d *jsontext.Decoder) ([]byte, error) {
	switch {
	case len(s) > 0 && d.PeekKind() == jsontext.KindBeginObject:
		return s.appendNextObject(b, d)
	case len(s) > 0 && d.PeekKind() == jsontext.KindBeginArray:
		return s.appendNextArray(b, d)
	}
	v, err := d.ReadValue()
	return append(b, v...), err
}

func (s fieldSelection) appendNextObject(b []byte, d *jsontext.Decoder) ([]byte, error) {
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
		b = append(appendQuotedText(append(b, separator...), key), ':')
		if b, err = below.appendNextValue(b, d); err != nil {
			return b, err
		}
		separator = ","
	}
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		b = append(appendQuotedText(append(b, separator...), key), ":null"...)
		separator = ","
	}
	_, err := d.ReadToken()
	return append(b, '}'), err
}

func (s fieldSelection) appendNextArray(b []byte, d *jsontext.Decoder) ([]byte, error) {
	if _, err := d.ReadToken(); err != nil {
		return b, err
	}
	b = append(b, '[')
	for i := 0; d.PeekKind() != jsontext.KindEndArray; i++ {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = s.appendNextValue(b, d); err != nil {
			return b, err
		}
	}
	_, err := d.ReadToken()
	return append(b, ']'), err
}
