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

// Type returns the type of the field's values.
func (f Field) Type() Type {
	switch f {
	case Generation, ObservedGeneration, ConditionObservedGeneration:
		return Integer
	case CreatedTime, UpdatedTime, DeletedTime, LastUpdatedTime, LastTransitionTime,
		ConditionLastUpdatedTime, ConditionLastTransitionTime:
		return Time
	case ID, Name, CreatedBy, UpdatedBy, DeletedBy, Kind, OwnerID, Phase, Label, Spec, ConditionStatus, ConditionReason:
	}
	return Text
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
	for _, p := range plainColumns() {
		if p.field == c.Field {
			return p.name
		}
	}
	return fmt.Sprintf("field(%d)", c.Field)
}

type named struct {
	name  string
	field Field
}

// plainColumns returns the columns without a key.
func plainColumns() []named {
	return []named{
		{"id", ID},
		{"name", Name},
		{"generation", Generation},
		{"created_time", CreatedTime},
		{"updated_time", UpdatedTime},
		{"deleted_time", DeletedTime},
		{"created_by", CreatedBy},
		{"updated_by", UpdatedBy},
		{"deleted_by", DeletedBy},
		{"kind", Kind},
		{"owner_id", OwnerID},
		{"status.phase", Phase},
		{"status.observed_generation", ObservedGeneration},
		{"status.last_updated_time", LastUpdatedTime},
		{"status.last_transition_time", LastTransitionTime},
	}
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
