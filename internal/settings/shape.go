package settings

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// A kind is the notation of a type.
type kind int

const (
	scalar  kind = iota // one text
	section             // a struct: a mapping with known keys
	list                // a slice
	mapping             // a map from string: a mapping with user-defined keys
	ordered             // an OrderedMap
	tree                // a Tree: any value
)

// A shape describes a type for this package.
type shape struct {
	kind   kind
	typ    reflect.Type
	secret bool     // a scalar that is never shown
	elem   *shape   // of a list or mapping
	fields []*field // of a section, including those of embedded structs
}

// A field is a setting, or a section of settings, with its tags.
type field struct {
	path       string // dotted keys from the root
	key        string
	aliases    []string
	env        []string
	flag       string
	def        string
	hasDefault bool
	doc        string
	rules      string
	fileKey    string
	goName     string
	index      []int // within the section's struct
	shape      *shape
}

// maxNesting is deeper than any real configuration; a type that contains itself reaches it.
const maxNesting = 16

// readShapeAndSetDefaults reads the tags of the struct to which cfg points, and sets their defaults in it.
func readShapeAndSetDefaults(cfg any) (*shape, reflect.Value) {
	pointer := reflect.ValueOf(cfg)
	if pointer.Kind() != reflect.Pointer || pointer.IsNil() || pointer.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("settings: want a pointer to a struct, not a %T", cfg))
	}
	root := describeType(pointer.Type().Elem(), "", 0)
	setDefaultsWhereZero(root, pointer.Elem())
	return root, pointer.Elem()
}

// setDefaultsWhereZero sets the default of the tag for every zero setting below s.
func setDefaultsWhereZero(s *shape, v reflect.Value) {
	for _, setting := range listSettings(s, v) {
		f := setting.field
		if !f.hasDefault || !setting.value.IsZero() {
			continue
		}
		if err := setValueFromText(f.shape, setting.value, f.def); err != nil {
			panic(fmt.Sprintf("settings: default of %q: %v", f.path, err))
		}
	}
}

func describeType(t reflect.Type, path string, depth int) *shape {
	if depth > maxNesting {
		panic(fmt.Sprintf("settings: %q nests too deep", path))
	}
	s := &shape{typ: t, kind: scalar, secret: t == reflect.TypeFor[Secret]()}
	switch {
	case isScalar(t) || t.Kind() == reflect.Pointer && isScalar(t.Elem()):
		// s is already the shape of a scalar.
	case t == reflect.TypeFor[OrderedMap]():
		s.kind = ordered
	case t == reflect.TypeFor[Tree]():
		s.kind = tree
	case t.Kind() == reflect.Struct:
		s.kind = section
		s.fields = describeFields(t, path, nil, depth)
	case t.Kind() == reflect.Slice:
		s.kind = list
		s.elem = describeType(t.Elem(), path+"[]", depth+1)
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		s.kind = mapping
		s.elem = describeType(t.Elem(), path+"[*]", depth+1)
	default:
		panic(fmt.Sprintf("settings: %q has type %s, which is not supported", path, t))
	}
	return s
}

func isScalar(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return true
	}
	z := reflect.Zero(t)
	return t.Kind() == reflect.String || t.Kind() == reflect.Bool || z.CanInt() || z.CanUint() || z.CanFloat()
}

func describeFields(t reflect.Type, path string, index []int, depth int) []*field {
	var fields []*field
	for i := range t.NumField() {
		sf := t.Field(i)
		at := append(slices.Clone(index), i)
		key, ok := sf.Tag.Lookup("key")
		switch {
		case !ok && sf.Anonymous && sf.Type.Kind() == reflect.Struct:
			fields = append(fields, describeFields(sf.Type, path, at, depth+1)...)
		case ok && !sf.IsExported():
			panic(fmt.Sprintf("settings: %s.%s has a key but is not exported", t, sf.Name))
		case ok:
			fields = append(fields, describeField(sf, joinPath(path, key), at, depth))
		}
	}
	checkKeysAreUnique(fields, t, path)
	return fields
}

func checkKeysAreUnique(fields []*field, t reflect.Type, path string) {
	names := map[string]bool{}
	for _, f := range fields {
		for _, name := range f.keyNames() {
			if names[name] {
				panic(fmt.Sprintf("settings: %s has two fields for key %q", t, joinPath(path, name)))
			}
			names[name] = true
		}
	}
}

func describeField(sf reflect.StructField, path string, index []int, depth int) *field {
	f := &field{
		path:    path,
		key:     sf.Tag.Get("key"),
		aliases: splitCommaSeparatedTag(sf.Tag.Get("alias")),
		env:     splitCommaSeparatedTag(sf.Tag.Get("env")),
		flag:    sf.Tag.Get("flag"),
		doc:     sf.Tag.Get("doc"),
		rules:   sf.Tag.Get("validate"),
		fileKey: sf.Tag.Get("file"),
		goName:  sf.Name,
		index:   index,
		shape:   describeType(sf.Type, path, depth+1),
	}
	f.def, f.hasDefault = sf.Tag.Lookup("default")
	f.shape.secret = f.shape.secret || sf.Tag.Get("secret") == "true"
	f.checkTags()
	return f
}

// checkTags rejects invalid tags.
func (f *field) checkTags() {
	isPartOfElement := strings.Contains(f.path, "[")
	hasTextSource := len(f.env) > 0 || f.flag != ""
	switch {
	case isPartOfElement && (hasTextSource || f.fileKey != ""):
		panic(fmt.Sprintf("settings: %q is part of a list or map; it cannot have env, flag or file", f.path))
	case !f.shape.hasTextForm() && (hasTextSource || f.hasDefault):
		panic(fmt.Sprintf("settings: %q is a %s; it cannot have env, flag or default", f.path, f.shape.typ))
	case f.shape.kind != scalar && (f.fileKey != "" || f.shape.secret):
		panic(fmt.Sprintf("settings: %q is no scalar; it cannot be secret or in a separate file", f.path))
	case f.shape.secret && f.flag != "":
		panic(fmt.Sprintf("settings: %q is secret; a flag would show it to every user of the machine", f.path))
	case f.shape.elem != nil && f.shape.elem.hasValidationRules() && !strings.Contains(f.rules, "dive"):
		panic(fmt.Sprintf(`settings: the elements of %q have rules that need validate:"dive"`, f.path))
	}
	for _, rule := range splitCommaSeparatedTag(f.rules) {
		if name, _, _ := strings.Cut(rule, "="); !isKnownRule(name) {
			panic(fmt.Sprintf("settings: %q has the unknown rule %q", f.path, name))
		}
	}
}

// keyNames returns the keys that the file may use for f.
func (f *field) keyNames() []string {
	names := append([]string{f.key}, f.aliases...)
	if f.fileKey != "" {
		names = append(names, f.fileKey)
	}
	return names
}

// hasTextForm reports whether a value can be written as one text.
func (s *shape) hasTextForm() bool {
	return s.kind == scalar || (s.kind == list || s.kind == mapping) && s.elem.kind == scalar
}

// hasValidationRules reports whether a section contains values with validation rules.
func (s *shape) hasValidationRules() bool {
	return slices.ContainsFunc(s.fields, func(f *field) bool {
		return f.rules != "" || f.shape.hasValidationRules()
	})
}

// A setting is a field that is not a section, with its value.
type setting struct {
	field *field
	value reflect.Value
}

// listSettings returns the settings below a section, in order.
func listSettings(s *shape, v reflect.Value) []setting {
	var out []setting
	for _, f := range s.fields {
		value := v.FieldByIndex(f.index)
		if f.shape.kind == section {
			out = append(out, listSettings(f.shape, value)...)
		} else {
			out = append(out, setting{f, value})
		}
	}
	return out
}

func (s *shape) documentedTypeName() string {
	t := s.typ
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case s.kind == section:
		return "section"
	case s.kind == ordered:
		return "mapping"
	case s.kind == tree:
		return "any value"
	case s.kind == list:
		return "list of " + s.elem.documentedTypeName()
	case s.kind == mapping:
		return "map of " + s.elem.documentedTypeName()
	case s.secret:
		return "secret"
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t.Kind() == reflect.String, reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return "string"
	case t.Kind() == reflect.Bool:
		return "boolean"
	case t.Kind() == reflect.Float32, t.Kind() == reflect.Float64:
		return "number"
	default:
		return "integer"
	}
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func splitCommaSeparatedTag(tag string) []string {
	if tag == "" {
		return nil
	}
	return strings.Split(tag, ",")
}
