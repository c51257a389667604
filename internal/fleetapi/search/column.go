package search

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Prefixes of the columns that are followed by a key.
const (
	labelPrefix     = "labels."
	specPrefix      = "spec."
	conditionPrefix = "status.conditions."
)

// A Field is a value of a resource that a column can select.
type Field uint8

// The fields. Label, Spec and the Condition fields need a key, which is the name
// of the label, the path below spec with dots, or the type of the condition. Those before Label
// are the columns of listPlainColumns.
const (
	ID Field = iota
	Name
	Generation
	CreatedTime
	UpdatedTime
	DeletedTime // absent unless deletion was requested
	CreatedBy
	UpdatedBy
	DeletedBy // absent unless deletion was requested
	Kind
	OwnerID // absent if the resource has no owner
	Phase
	ObservedGeneration
	LastUpdatedTime
	LastTransitionTime
	Label
	Spec
	ConditionStatus
	ConditionReason
	ConditionObservedGeneration
	ConditionLastUpdatedTime
	ConditionLastTransitionTime
)

// ValueType returns the type of the field's values.
func (f Field) ValueType() Type {
	if p, ok := findPlainColumn(f); ok {
		return p.holds
	}
	switch f { //nolint:exhaustive // the others are text
	case ConditionObservedGeneration:
		return Integer
	case ConditionLastUpdatedTime, ConditionLastTransitionTime:
		return Time
	}
	return Text
}

// IsOptional reports whether a resource may lack the field.
func (f Field) IsOptional() bool {
	p, ok := findPlainColumn(f)
	return !ok || p.optional
}

// String returns the column as a query spells it.
func (c Column) String() string {
	switch c.Field { //nolint:exhaustive // the others are looked up below
	case Label:
		return labelPrefix + c.Key
	case Spec:
		return specPrefix + c.Key
	}
	if suffix, ok := findConditionSuffix(c.Field); ok {
		return conditionPrefix + c.Key + suffix
	}
	if p, ok := findPlainColumn(c.Field); ok {
		return p.name
	}
	return fmt.Sprintf("field(%d)", c.Field)
}

type namedField struct {
	name  string
	field Field
}

// A plainColumn is a column without a key.
type plainColumn struct {
	namedField

	holds    Type
	optional bool
}

func listPlainColumns() [15]plainColumn {
	const optional = true
	return [...]plainColumn{
		{namedField{"id", ID}, Text, !optional},
		{namedField{"name", Name}, Text, !optional},
		{namedField{"generation", Generation}, Integer, !optional},
		{namedField{"created_time", CreatedTime}, Time, !optional},
		{namedField{"updated_time", UpdatedTime}, Time, !optional},
		{namedField{"deleted_time", DeletedTime}, Time, optional},
		{namedField{"created_by", CreatedBy}, Text, !optional},
		{namedField{"updated_by", UpdatedBy}, Text, !optional},
		{namedField{"deleted_by", DeletedBy}, Text, optional},
		{namedField{"kind", Kind}, Text, !optional},
		{namedField{"owner_id", OwnerID}, Text, optional},
		{namedField{"status.phase", Phase}, Text, !optional},
		{namedField{"status.observed_generation", ObservedGeneration}, Integer, !optional},
		{namedField{"status.last_updated_time", LastUpdatedTime}, Time, !optional},
		{namedField{"status.last_transition_time", LastTransitionTime}, Time, !optional},
	}
}

func findPlainColumn(field Field) (column plainColumn, found bool) {
	for _, p := range listPlainColumns() {
		if p.field == field {
			return p, true
		}
	}
	return plainColumn{}, false
}

func listConditionColumns() []namedField {
	return []namedField{
		{"", ConditionStatus},
		{".status", ConditionStatus},
		{".reason", ConditionReason},
		{".observed_generation", ConditionObservedGeneration},
		{".last_updated_time", ConditionLastUpdatedTime},
		{".last_transition_time", ConditionLastTransitionTime},
	}
}

func findConditionSuffix(field Field) (suffix string, found bool) {
	for _, n := range listConditionColumns() {
		if n.field == field {
			return n.name, true
		}
	}
	return "", false
}

// parseColumn parses a column. The key of a label may be quoted.
func (p *parser) parseColumn() (Column, error) {
	t := p.nextToken()
	if t.kind != word {
		return Column{}, newErrorAt(t.column, "expected a column (%s), found %s", describeColumns(), t)
	}
	name := t.value
	if quotedKey := p.peekToken(); quotedKey.kind == text && strings.HasSuffix(name, ".") {
		name += p.nextToken().value
	}
	if key, ok := strings.CutPrefix(name, labelPrefix); ok {
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			return Column{}, newErrorAt(t.column, "%q is not a label key: %s", key, errs[0])
		}
		return Column{Field: Label, Key: key}, nil
	}
	if path, ok := strings.CutPrefix(name, specPrefix); ok {
		return p.parseSpecColumn(t, path)
	}
	if rest, ok := strings.CutPrefix(name, conditionPrefix); ok {
		return parseConditionColumn(t, rest)
	}
	for _, n := range listPlainColumns() {
		if n.name == name {
			return Column{Field: n.field}, nil
		}
	}
	return Column{}, newErrorAt(t.column, "unknown column %q; use one of %s", name, describeColumns())
}

// parseSpecColumn parses a path below the spec. The path leads through objects only.
func (p *parser) parseSpecColumn(at token, dottedPath string) (Column, error) {
	isPart := func(c byte) bool { return isLetter(c) || isDigit(c) || c == '_' || c == '-' }
	for part := range strings.SplitSeq(dottedPath, ".") {
		if part == "" || prefixLength(part, isPart) != len(part) {
			return Column{}, newErrorAt(
				at.column,
				"%q is not a path in the spec; separate names with dots and use letters, digits, _ and -",
				dottedPath,
			)
		}
	}
	if p.specColumns++; p.specColumns > MaxSpecColumns {
		return Column{}, newErrorAt(at.column, "a query can use at most %d spec columns", MaxSpecColumns)
	}
	return Column{Field: Spec, Key: dottedPath}, nil
}

func parseConditionColumn(at token, suffix string) (Column, error) {
	kind, part := suffix, ""
	if i := strings.IndexByte(suffix, '.'); i >= 0 {
		kind, part = suffix[:i], suffix[i:]
	}
	if kind == "" || prefixLength(kind, func(c byte) bool { return isLetter(c) || isDigit(c) }) != len(kind) {
		return Column{}, newErrorAt(at.column, "%q is not the type of a condition", kind)
	}
	var parts []string
	for _, n := range listConditionColumns() {
		if n.name == part {
			return Column{Field: n.field, Key: kind}, nil
		}
		parts = append(parts, strings.TrimPrefix(n.name, "."))
	}
	return Column{}, newErrorAt(at.column, "a condition has no field %q; use %s", part[1:], strings.Join(parts[1:], ", "))
}

func describeColumns() string {
	var names []string
	for _, n := range listPlainColumns() {
		names = append(names, n.name)
	}
	return strings.Join(append(names, "labels.<key>", "spec.<path>", "status.conditions.<type>"), ", ")
}

// FindSortableField returns the field with a name, if an order may use it: any column without a key, except
// those of the status that have no index.
func FindSortableField(name string) (field Field, found bool) {
	for _, n := range listPlainColumns() {
		if n.name == name && n.field != ObservedGeneration && n.field != LastUpdatedTime {
			return n.field, true
		}
	}
	return 0, false
}
