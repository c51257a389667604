package payload

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

// A Conversion is a value of message_data that sends a number or a boolean of
// the resource as a text.
type Conversion struct {
	// Key is the path of the value in message_data.
	Key string

	// Field is the field of the resource, such as ".generation".
	Field string

	// Type is "number" or "boolean".
	Type string

	// CEL is a value that sends the field with its type.
	CEL string
}

// FindConversionsToText returns the values that send a number or a boolean of this resource as a
// text. It omits values with more than one field, because those are meant to be texts.
func (b *Builder) FindConversionsToText(raw []byte) ([]Conversion, error) {
	if !slices.ContainsFunc(b.fields, field.hasPath) {
		return nil, nil
	}
	resource, err := decision.ParseObject(raw, b.needs.namesOrNilForAll())
	if err != nil {
		return nil, err
	}
	return listConversions(b.fields, func(names []string) string { return numberOrBooleanTypeOf(lookUpPathOrNil(resource, names)) }), nil
}

// ListNumberFieldsSentAsText returns the values that send a field as text although it is a number
// in every resource. Only resources show whether a field of the spec is one: see Conversions.
func (b *Builder) ListNumberFieldsSentAsText() []Conversion {
	return listConversions(b.fields, func(names []string) string {
		switch strings.Join(names, ".") {
		case "generation", "status.observed_generation", "status.observedGeneration":
			return typeNumber
		}
		return ""
	})
}

const (
	typeNumber  = "number"
	typeBoolean = "boolean"
)

// numberOrBooleanTypeOf returns the name of the type of a number or a boolean.
func numberOrBooleanTypeOf(v any) string {
	switch v.(type) {
	case bool:
		return typeBoolean
	case nil, string, map[string]any, []any:
		return ""
	}
	return typeNumber
}

func listConversions(fields []field, lostTypeOrEmpty func(names []string) string) []Conversion {
	var list []Conversion
	for _, f := range fields {
		list = append(list, listConversions(f.fields, lostTypeOrEmpty)...)
		if f.names == nil {
			continue
		}
		if t := lostTypeOrEmpty(f.names); t != "" {
			cel := "cel:" + formatCELFieldAccess(f.names)
			list = append(list, Conversion{Key: f.path, Field: "." + strings.Join(f.names, "."), Type: t, CEL: cel})
		}
	}
	return list
}

// hasPath reports whether the field, or a field nested in it, is a field of the resource.
func (f field) hasPath() bool { return f.names != nil || slices.ContainsFunc(f.fields, field.hasPath) }

var (
	loneField     = regexp.MustCompile(`^(?:\{\{-?\s*)?\.([A-Za-z0-9_.-]+?)(?:\s*-?\}\})?$`)
	celIdentifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// parseLoneFieldPath returns the path of a message_data value that consists of one resource field.
// It returns nil for any other value.
func parseLoneFieldPath(text string) []string {
	m := loneField.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	return strings.Split(m[1], ".")
}

// formatCELFieldAccess returns the CEL expression for a field of the resource.
func formatCELFieldAccess(names []string) string {
	var b strings.Builder
	b.WriteString("resource")
	for _, name := range names {
		// CEL reserves some words.
		reserved := slices.Contains([]string{"true", "false", "null", "in"}, name)
		if celIdentifier.MatchString(name) && !reserved {
			b.WriteString("." + name)
		} else {
			b.WriteString("[" + strconv.Quote(name) + "]")
		}
	}
	return b.String()
}
