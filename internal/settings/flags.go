package settings

import (
	"reflect"
	"strings"

	"github.com/spf13/pflag"
)

// AddFlags registers a flag for each setting of cfg, a pointer to a struct,
// that has one. The usage shows the default and the variables. Values are
// checked by Load, with everything else, so that one run names all that is
// wrong. A flag of a list or map may be given several times and adds up. A
// flag that AddFlags has registered before with the same type is shared; any
// other that is there already makes pflag panic.
func AddFlags(fs *pflag.FlagSet, cfg any) {
	root := structOf(cfg)
	setDefaults(readShape(root.Type()), root)
	for f, v := range allSettings(readShape(root.Type()), root) {
		if f.flag == "" {
			continue
		}
		value := &flagValue{shape: f.shape, texts: textsOf(f.shape, v)}
		if old := fs.Lookup(f.flag); old != nil {
			if shared, ok := old.Value.(*flagValue); ok && shared.Type() == value.Type() {
				continue
			}
		}
		usage := strings.TrimSuffix(f.doc, ".")
		if len(f.env) > 0 {
			usage += " (env " + strings.Join(f.env, ", ") + ")"
		}
		flag := fs.VarPF(value, f.flag, "", usage)
		if f.shape.typeName() == "boolean" {
			flag.NoOptDefVal = "true"
		}
	}
}

// A flagValue collects the texts of a flag as they were given.
type flagValue struct {
	shape *shape
	texts []string
	given bool // the texts are no longer the default
}

// Set notes one use of the flag.
func (f *flagValue) Set(text string) error {
	if !f.given || f.shape.kind == scalar {
		f.texts, f.given = nil, true
	}
	if f.shape.kind == scalar {
		f.texts = []string{text}
		return nil
	}
	f.texts = append(f.texts, strings.Split(text, ",")...)
	return nil
}

// String is the value as the help shows it.
func (f *flagValue) String() string { return strings.Join(f.texts, ",") }

// Type is the word for the value in the help.
func (f *flagValue) Type() string {
	switch name := f.shape.typeName(); {
	case f.shape.kind == list:
		return f.shape.elem.typeName() + "s"
	case f.shape.kind == mapping:
		return "key=value,..."
	case name == "boolean":
		return "bool" // pflag leaves it out of the usage
	case name == "integer":
		return "int"
	default:
		return name
	}
}

// Append adds one text; with Replace and GetSlice it is pflag.SliceValue.
func (f *flagValue) Append(text string) error { return f.Set(text) }

// Replace sets all texts.
func (f *flagValue) Replace(texts []string) error {
	f.texts, f.given = texts, true
	return nil
}

// GetSlice gives the texts.
func (f *flagValue) GetSlice() []string { return f.texts }

// textsOf writes a value back as texts that setTexts reads.
func textsOf(s *shape, v reflect.Value) []string {
	switch s.kind {
	case list:
		var texts []string
		for i := range v.Len() {
			texts = append(texts, textOf(s.elem, v.Index(i)))
		}
		return texts
	case mapping:
		var texts []string
		for _, key := range sortedKeys(v) {
			texts = append(texts, key.String()+"="+textOf(s.elem, v.MapIndex(key)))
		}
		return texts
	case scalar, section, ordered:
	}
	if text := textOf(s, v); text != "" {
		return []string{text}
	}
	return nil
}
