package settings

import (
	"encoding"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Report lists the effective configuration with the source of each value. It reads the struct
// that Load filled, which must not be changed.
type Report struct {
	file    string
	root    *shape
	value   reflect.Value
	origins map[string]Origin
	places  map[string]place
}

// Origins returns every setting in the order of the struct.
func (r *Report) Origins() []Origin {
	var out []Origin
	for _, s := range listSettings(r.root, r.value) {
		o := r.origins[s.field.path]
		o.Value = formatOnOneLine(s.field.shape, s.value)
		out = append(out, o)
	}
	return out
}

func formatOnOneLine(s *shape, v reflect.Value) string {
	if s.hasTextForm() {
		return strings.Join(formatAsTexts(s, v), ",")
	}
	node := newYAMLNode(s, v)
	node.Style |= yaml.FlowStyle
	text, err := yaml.Marshal(node)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// WrapWithOrigin adds the setting, and its position in the file, to an error that was found after Load. key
// is a path such as "message_data.region" or "resource_selector[0].value"; a key that is not set is
// named as well. WrapWithOrigin(key, nil) is nil.
func (r *Report) WrapWithOrigin(key string, err error) error {
	if err == nil {
		return nil
	}
	o, known := r.origins[key]
	if p, ok := r.places[key]; ok {
		o = Origin{Source: FromFile, Name: r.file, Line: p.line, Column: p.column}
	} else if !known {
		o = Origin{Source: FromDefault}
	}
	o.Key = key
	return o.wrapError(err)
}

// WriteYAML writes the effective configuration as YAML, with secrets as "***". withOrigins adds a
// comment with its source to each value. Load can read the output, except for secrets.
func (r *Report) WriteYAML(w io.Writer, withOrigins bool) error {
	root := r.newSectionNode(r.root, r.value, withOrigins)
	if len(root.Content) == 0 {
		return nil
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return enc.Close()
}

// newSectionNode returns a section as YAML with the origins as comments.
func (r *Report) newSectionNode(s *shape, v reflect.Value, withOrigins bool) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range s.fields {
		fv := v.FieldByIndex(f.index)
		key, value := newTextNode(f.key), newYAMLNode(f.shape, fv)
		if value == nil {
			continue // a nil pointer, which has no YAML form
		}
		if f.shape.kind == section {
			value = r.newSectionNode(f.shape, fv, withOrigins)
		}
		if o, ok := r.origins[f.path]; ok && withOrigins {
			// The encoder places the comment of a block after its key.
			if len(value.Content) > 0 {
				key.LineComment = o.String()
			} else {
				value.LineComment = o.String()
			}
		}
		out.Content = append(out.Content, key, value)
	}
	return out
}

// newYAMLNode returns a value as YAML; nil if it is not set.
func newYAMLNode(s *shape, v reflect.Value) *yaml.Node {
	switch s.kind {
	case section:
		out := &yaml.Node{Kind: yaml.MappingNode}
		for _, f := range s.fields {
			if value := newYAMLNode(f.shape, v.FieldByIndex(f.index)); value != nil {
				out.Content = append(out.Content, newTextNode(f.key), value)
			}
		}
		return out
	case list:
		out := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			out.Content = append(out.Content, newYAMLNode(s.elem, v.Index(i)))
		}
		return setFlowStyleIfEmpty(out)
	case mapping:
		out := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range sortedKeys(v) {
			out.Content = append(out.Content, newTextNode(key.String()), newYAMLNode(s.elem, v.MapIndex(key)))
		}
		return setFlowStyleIfEmpty(out)
	case ordered:
		m, _ := reflect.TypeAssert[OrderedMap](v)
		return newOrderedMapNode(m)
	case tree:
		t, _ := reflect.TypeAssert[Tree](v)
		return newUntypedNode(t.Value)
	case scalar:
	}
	return newScalarNode(s, v)
}

func newOrderedMapNode(m OrderedMap) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode}
	for _, e := range m {
		value := newTextNode(e.Value)
		if e.Map != nil {
			value = newOrderedMapNode(e.Map)
		}
		out.Content = append(out.Content, newTextNode(e.Key), value)
	}
	return setFlowStyleIfEmpty(out)
}

func newScalarNode(s *shape, v reflect.Value) *yaml.Node {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	text := formatTextHidingSecret(s, v)
	switch s.documentedTypeName() {
	case "boolean", "integer", "number":
		return &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	}
	return newTextNode(text)
}

// newTextNode returns a string with the necessary quotes.
func newTextNode(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(text)
	if strings.Contains(text, "\n") {
		n.Style = yaml.DoubleQuotedStyle // a block would lose the comment
	}
	return n
}

// formatTextHidingSecret returns a scalar as text that setScalarFromText parses, unless it is secret.
func formatTextHidingSecret(s *shape, v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	if s.secret {
		if v.IsZero() {
			return ""
		}
		return redacted
	}
	boxed := v.Interface()
	if v.CanAddr() {
		boxed = v.Addr().Interface()
	}
	if m, ok := boxed.(encoding.TextMarshaler); ok {
		if text, err := m.MarshalText(); err == nil {
			return string(text)
		}
	}
	if v.Kind() == reflect.String {
		return v.String()
	}
	return fmt.Sprint(v.Interface())
}

func setFlowStyleIfEmpty(n *yaml.Node) *yaml.Node {
	if len(n.Content) == 0 {
		n.Style = yaml.FlowStyle
	}
	return n
}

func sortedKeys(v reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int {
		return strings.Compare(a.String(), b.String())
	})
}
