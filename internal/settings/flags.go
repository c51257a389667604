package settings

import (
	"reflect"
	"strings"

	"github.com/spf13/pflag"
)

// AddFlags registers the flags of the settings of cfg, a pointer to a struct. The usage shows the
// default and the variables. Load checks the values, with all others, so that one run reports all
// errors. A flag of a list or map may be given several times and accumulates. A flag that AddFlags
// has registered before with the same type is shared; any other existing flag of the name makes
// pflag panic.
func AddFlags(fs *pflag.FlagSet, cfg any) {
	for _, setting := range listSettings(readShapeAndSetDefaults(cfg)) {
		f := setting.field
		if f.flag == "" {
			continue
		}
		value := &flagValue{shape: f.shape, texts: formatAsTexts(f.shape, setting.value)}
		if old := fs.Lookup(f.flag); old != nil {
			if shared, ok := old.Value.(*flagValue); ok && shared.Type() == value.Type() {
				continue
			}
		}
		usage := lowerFirstIfPlainWord(strings.TrimSuffix(f.doc, "."))
		if len(f.env) > 0 {
			usage += " (env " + strings.Join(f.env, ", ") + ")"
		}
		flag := fs.VarPF(value, f.flag, "", usage)
		if f.shape.documentedTypeName() == "boolean" {
			flag.NoOptDefVal = "true"
		}
	}
}

// lowerFirstIfPlainWord begins a usage in lower case, as those of other flags do. It keeps names, such as URL,
// PostgreSQL and Kubernetes.
func lowerFirstIfPlainWord(text string) string {
	word, _, _ := strings.Cut(text, " ")
	if word == "" || word == "Kubernetes" || strings.ToLower(word[1:]) != word[1:] {
		return text
	}
	return strings.ToLower(word[:1]) + text[1:]
}

// A flagValue collects the texts of a flag.
type flagValue struct {
	shape *shape
	texts []string
	given bool // the texts are no longer the default
}

// Set records one use of the flag.
func (f *flagValue) Set(text string) error {
	switch {
	case f.shape.kind == scalar:
		f.texts = []string{text}
	case f.given:
		f.texts = append(f.texts, strings.Split(text, ",")...)
	default:
		f.texts = strings.Split(text, ",")
	}
	f.given = true
	return nil
}

// String returns the value as the help shows it.
func (f *flagValue) String() string { return strings.Join(f.texts, ",") }

// Type returns the type of the value in the help.
func (f *flagValue) Type() string {
	switch name := f.shape.documentedTypeName(); {
	case f.shape.kind == list:
		return f.shape.elem.documentedTypeName() + "s"
	case f.shape.kind == mapping:
		return "key=value,..."
	case name == "boolean":
		return "bool" // pflag omits it from the usage
	case name == "integer":
		return "int"
	default:
		return name
	}
}

// Append adds one text. With Replace and GetSlice it implements pflag.SliceValue.
func (f *flagValue) Append(text string) error { return f.Set(text) }

// Replace sets all texts.
func (f *flagValue) Replace(texts []string) error {
	f.texts, f.given = texts, true
	return nil
}

func (f *flagValue) GetSlice() []string { return f.texts }

// formatAsTexts returns a value as texts that setValueFromTexts parses.
func formatAsTexts(s *shape, v reflect.Value) []string {
	switch s.kind {
	case list:
		var texts []string
		for i := range v.Len() {
			texts = append(texts, formatTextHidingSecret(s.elem, v.Index(i)))
		}
		return texts
	case mapping:
		var texts []string
		for _, key := range sortedKeys(v) {
			texts = append(texts, key.String()+"="+formatTextHidingSecret(s.elem, v.MapIndex(key)))
		}
		return texts
	case scalar, section, ordered, tree:
	}
	if text := formatTextHidingSecret(s, v); text != "" {
		return []string{text}
	}
	return nil
}
