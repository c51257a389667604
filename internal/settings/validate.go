package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-playground/validator/v10"
)

// inlined is the validator's name for an embedded struct, which is removed from its paths.
const inlined = "~."

// validateRules checks the rules of the tags. It omits settings that already have a problem.
func (l *loader) validateRules(root reflect.Value) {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(sf reflect.StructField) string {
		key := sf.Tag.Get("key")
		if key == "" && sf.Anonymous {
			return strings.TrimSuffix(inlined, ".")
		}
		return key
	})
	var broken validator.ValidationErrors
	if !errors.As(v.Struct(root.Addr().Interface()), &broken) {
		return
	}
	for _, e := range broken {
		path := e.Namespace()
		if name := root.Type().Name(); name != "" {
			path = path[len(name)+1:]
		}
		path = strings.ReplaceAll(path, inlined, "")
		if !hasProblemAtOrAbove(l.bad, path) {
			l.addProblemf(l.originOf(path), "%s", l.describeViolation(e, path))
		}
	}
}

// hasProblemAtOrAbove reports whether a path, or one of its parents, has a problem.
func hasProblemAtOrAbove(bad map[string]bool, path string) bool {
	for {
		if bad[path] {
			return true
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return false
		}
		path = path[:i]
	}
}

// originOf returns the source of a value: its position in the file, or that of the setting that
// contains it.
func (l *loader) originOf(path string) Origin {
	for at := path; ; {
		if p, ok := l.places[at]; ok {
			return Origin{Key: path, Source: FromFile, Name: l.src.File, Line: p.line, Column: p.column}
		}
		if o, ok := l.origins[at]; ok {
			o.Key = path
			return o
		}
		i := strings.LastIndexAny(at, ".[")
		if i < 0 {
			return Origin{Key: path, Source: FromDefault}
		}
		at = at[:i]
	}
}

// describeViolation returns a message about the violated rule, in this package's words.
func (l *loader) describeViolation(e validator.FieldError, path string) string {
	f := l.root.fieldAt(path)
	say := describeRule(e, func(goName string) string { return l.root.siblingKey(path, goName) })
	if strings.HasPrefix(e.Tag(), "required") {
		return say + howToSet(f)
	}
	if isSecret(f) {
		return say
	}
	switch got := e.Value().(type) {
	case string:
		say += fmt.Sprintf("; got %q", got)
	case fmt.Stringer:
		say += fmt.Sprintf("; got %s", got)
	default:
		if k := e.Kind(); k != reflect.Slice && k != reflect.Map && k != reflect.Struct {
			say += fmt.Sprintf("; got %v", got)
		}
	}
	if e.Tag() == "oneof" {
		if best := Nearest(fmt.Sprint(e.Value()), strings.Fields(e.Param())); best != "" {
			say += fmt.Sprintf("; did you mean %q?", best)
		}
	}
	return say
}

// describeRule returns a rule as a sentence that begins with the name of the setting. keyOf returns
// the key of a neighbouring field.
func describeRule(e validator.FieldError, keyOf func(goName string) string) string {
	param := e.Param()
	switch e.Tag() {
	case "required":
		return "is required"
	case "required_with", "required_with_all":
		return "is required together with " + quoteKeys(param, keyOf)
	case "required_without", "required_without_all":
		return "is required without " + quoteKeys(param, keyOf)
	case "required_if":
		return "is required when " + describeConditions(param, keyOf)
	case "required_unless":
		return "is required unless " + describeConditions(param, keyOf)
	case "excluded_with", "excluded_with_all":
		return "cannot be set together with " + quoteKeys(param, keyOf)
	case "excluded_if":
		return "cannot be set when " + describeConditions(param, keyOf)
	case "excluded_unless":
		return "cannot be set unless " + describeConditions(param, keyOf)
	case "oneof":
		return "must be one of " + strings.Join(strings.Fields(param), ", ")
	case "gtfield", "gtefield", "ltfield", "ltefield", "eqfield", "nefield":
		return fmt.Sprintf("must be %s %s", comparisonWords(strings.TrimSuffix(e.Tag(), "field")), quoteKeys(param, keyOf))
	case "gt", "gte", "min", "lt", "lte", "max", "eq", "ne", "len":
		return describeLimit(e)
	case "url", "uri", "http_url":
		return `must be a URL such as "http://host:8080"`
	case "hostname_port":
		return `must be host:port such as "localhost:8080"`
	case "unique":
		return "must not have duplicate entries"
	}
	if param == "" {
		return "must be a valid " + e.Tag()
	}
	return fmt.Sprintf("must satisfy the rule %s=%s", e.Tag(), param)
}

// describeLimit returns the text of a comparison with a constant: of the value, or of its length.
func describeLimit(e validator.FieldError) string {
	what := comparisonWords(e.Tag())
	if k := e.Kind(); k == reflect.String {
		return fmt.Sprintf("must have %s %s characters", what, e.Param())
	} else if k == reflect.Slice || k == reflect.Map {
		return fmt.Sprintf("must have %s %s entries", what, e.Param())
	}
	param := e.Param()
	if e.Type() == reflect.TypeFor[time.Duration]() && param == "0" {
		param = "0s"
	}
	return strings.ReplaceAll("must be "+what+" "+param, "exactly ", "")
}

func comparisonWords(tag string) string {
	switch tag {
	case "gt":
		return "more than"
	case "gte", "min":
		return "at least"
	case "lt":
		return "less than"
	case "lte", "max":
		return "at most"
	case "ne":
		return "other than"
	default:
		return "exactly"
	}
}

// quoteKeys returns the names of the fields in a rule's parameter.
func quoteKeys(param string, keyOf func(string) string) string {
	var out []string
	for goName := range strings.FieldsSeq(param) {
		out = append(out, fmt.Sprintf("%q", keyOf(goName)))
	}
	return strings.Join(out, " and ")
}

// describeConditions returns the text for the pairs of field and value in a rule's parameter.
func describeConditions(param string, keyOf func(string) string) string {
	var out []string
	for pair := range slices.Chunk(strings.Fields(param), 2) {
		if len(pair) == 2 {
			out = append(out, fmt.Sprintf("%q is %s", keyOf(pair[0]), pair[1]))
		}
	}
	return strings.Join(out, " and ")
}

// howToSet returns the names of the sources for a setting.
func howToSet(f *field) string {
	if f == nil || strings.Contains(f.path, "[") {
		return ""
	}
	ways := []string{"in the file"}
	if len(f.env) > 0 {
		ways = append(ways, "with "+f.env[0])
	}
	if f.flag != "" {
		ways = append(ways, "with --"+f.flag)
	}
	return "; set it " + strings.Join(ways, " or ")
}

func isSecret(f *field) bool { return f != nil && f.shape.secret }

// fieldAt returns the field at a path, ignoring the indexes of lists and maps; nil if the path has
// no field.
func (s *shape) fieldAt(path string) *field {
	var f *field
	for key := range strings.SplitSeq(withoutIndexes(path), ".") {
		for s.kind == list || s.kind == mapping {
			s = s.elem
		}
		if f = s.findField(key); f == nil {
			return nil
		}
		s = f.shape
	}
	return f
}

// siblingKey returns the key of the field with a Go name next to the one at path.
func (s *shape) siblingKey(path, goName string) string {
	if i := strings.LastIndexByte(withoutIndexes(path), '.'); i >= 0 {
		if f := s.fieldAt(withoutIndexes(path)[:i]); f != nil {
			s = f.shape
		}
	}
	for s.kind == list || s.kind == mapping {
		s = s.elem
	}
	for _, f := range s.fields {
		if f.goName == goName {
			return f.key
		}
	}
	return goName
}

// withoutIndexes removes "[0]" and "[key]" from a path.
func withoutIndexes(path string) string {
	for {
		before, rest, ok := strings.Cut(path, "[")
		if !ok {
			return path
		}
		_, after, ok := strings.Cut(rest, "]")
		if !ok {
			return path
		}
		path = before + after
	}
}
