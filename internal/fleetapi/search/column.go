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
// are the columns of plainColumns.
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

// Type returns the type of the field's values.
func (f Field) Type() Type {
	if p, ok := plainColumnOf(f); ok {
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

// Optional reports whether a resource may lack the field.
func (f Field) Optional() bool {
	p, ok := plainColumnOf(f)
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
	if suffix, ok := conditionSuffix(c.Field); ok {
		return conditionPrefix + c.Key + suffix
	}
	if p, ok := plainColumnOf(c.Field); ok {
		return p.name
	}
	return fmt.Sprintf("field(%d)", c.Field)
}

type named struct {
	name  string
	field Field
}

// A plainColumn is a column without a key.
type plainColumn struct {
	named

	holds    Type
	optional bool
}

// plainColumns returns the columns without a key.
func plainColumns() [15]plainColumn {
	const optional = true
	return [...]plainColumn{
		{named{"id", ID}, Text, !optional},
		{named{"name", Name}, Text, !optional},
		{named{"generation", Generation}, Integer, !optional},
		{named{"created_time", CreatedTime}, Time, !optional},
		{named{"updated_time", UpdatedTime}, Time, !optional},
		{named{"deleted_time", DeletedTime}, Time, optional},
		{named{"created_by", CreatedBy}, Text, !optional},
		{named{"updated_by", UpdatedBy}, Text, !optional},
		{named{"deleted_by", DeletedBy}, Text, optional},
		{named{"kind", Kind}, Text, !optional},
		{named{"owner_id", OwnerID}, Text, optional},
		{named{"status.phase", Phase}, Text, !optional},
		{named{"status.observed_generation", ObservedGeneration}, Integer, !optional},
		{named{"status.last_updated_time", LastUpdatedTime}, Time, !optional},
		{named{"status.last_transition_time", LastTransitionTime}, Time, !optional},
	}
}

func plainColumnOf(f Field) (plainColumn, bool) {
	for _, p := range plainColumns() {
		if p.field == f {
			return p, true
		}
	}
	return plainColumn{}, false
}

// conditionColumns returns the column suffixes of a condition.
func conditionColumns() []named {
	return []named{
		{"", ConditionStatus},
		{".status", ConditionStatus},
		{".reason", ConditionReason},
		{".observed_generation", ConditionObservedGeneration},
		{".last_updated_time", ConditionLastUpdatedTime},
		{".last_transition_time", ConditionLastTransitionTime},
	}
}

func conditionSuffix(f Field) (string, bool) {
	for _, n := range conditionColumns() {
		if n.field == f {
			return n.name, true
		}
	}
	return "", false
}

// parseColumn parses a column. The key of a label may be quoted.
func (p *parser) parseColumn() (Column, error) {
	t := p.nextToken()
	if t.kind != word {
		return Column{}, errorAt(t.column, "expected a column (%s), found %s", listColumns(), t)
	}
	name := t.value
	if quotedKey := p.peekToken(); quotedKey.kind == text && strings.HasSuffix(name, ".") {
		name += p.nextToken().value
	}
	if key, ok := strings.CutPrefix(name, labelPrefix); ok {
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			return Column{}, errorAt(t.column, "%q is not a label key: %s", key, errs[0])
		}
		return Column{Field: Label, Key: key}, nil
	}
	if path, ok := strings.CutPrefix(name, specPrefix); ok {
		return p.parseSpecPath(t, path)
	}
	if rest, ok := strings.CutPrefix(name, conditionPrefix); ok {
		return parseConditionColumn(t, rest)
	}
	for _, n := range plainColumns() {
		if n.name == name {
			return Column{Field: n.field}, nil
		}
	}
	return Column{}, errorAt(t.column, "unknown column %q; use one of %s", name, listColumns())
}

// parseSpecPath parses a path below the spec. The path leads through objects only.
func (p *parser) parseSpecPath(t token, path string) (Column, error) {
	isPart := func(c byte) bool { return isLetter(c) || isDigit(c) || c == '_' || c == '-' }
	for part := range strings.SplitSeq(path, ".") {
		if part == "" || spanLength(part, isPart) != len(part) {
			return Column{}, errorAt(t.column, "%q is not a path in the spec; separate names with dots and use letters, digits, _ and -", path)
		}
	}
	if p.specColumns++; p.specColumns > MaxSpecColumns {
		return Column{}, errorAt(t.column, "a query can use at most %d spec columns", MaxSpecColumns)
	}
	return Column{Field: Spec, Key: path}, nil
}

func parseConditionColumn(t token, rest string) (Column, error) {
	kind, part := rest, ""
	if i := strings.IndexByte(rest, '.'); i >= 0 {
		kind, part = rest[:i], rest[i:]
	}
	if kind == "" || spanLength(kind, func(c byte) bool { return isLetter(c) || isDigit(c) }) != len(kind) {
		return Column{}, errorAt(t.column, "%q is not the type of a condition", kind)
	}
	var parts []string
	for _, n := range conditionColumns() {
		if n.name == part {
			return Column{Field: n.field, Key: kind}, nil
		}
		parts = append(parts, strings.TrimPrefix(n.name, "."))
	}
	return Column{}, errorAt(t.column, "a condition has no field %q; use %s", part[1:], strings.Join(parts[1:], ", "))
}

// listColumns returns all columns for an error message.
func listColumns() string {
	var names []string
	for _, n := range plainColumns() {
		names = append(names, n.name)
	}
	return strings.Join(append(names, "labels.<key>", "spec.<path>", "status.conditions.<type>"), ", ")
}

// SortableField returns the field with a name, if an order may use it: any column without a key, except
// those of the status that have no index.
func SortableField(name string) (Field, bool) {
	for _, n := range plainColumns() {
		if n.name == name && n.field != ObservedGeneration && n.field != LastUpdatedTime {
			return n.field, true
		}
	}
	return 0, false
}
