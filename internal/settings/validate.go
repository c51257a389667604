package settings

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A violation is a value that breaks a rule of its tag.
type violation struct {
	rule, param string
	path        string
	value       reflect.Value
}

// A validator checks the rules of the tags. It omits settings that already have a problem.
type validator struct{ loader *loader }

func (c validator) validateSection(s *shape, v reflect.Value, path string) {
	for _, f := range s.fields {
		start := violation{path: joinPath(path, f.key), value: v.FieldByIndex(f.index)}
		c.validateValue(f.shape, v, start, splitCommaSeparatedTag(f.rules))
	}
}

// validateValue checks the value of a field of section against rules, up to the first that it breaks,
// and then the rules of its parts.
func (c validator) validateValue(s *shape, parentSection reflect.Value, at violation, rules []string) {
	for i, text := range rules {
		at.rule, at.param, _ = strings.Cut(text, "=")
		switch at.rule {
		case "omitempty":
			if at.value.IsZero() {
				return
			}
		case "dive":
			c.validateElements(s, parentSection, at, rules[i+1:])
			return
		default:
			if at.isViolated(parentSection) {
				if !hasProblemAtOrAbove(c.loader.bad, at.path) {
					c.loader.addProblemf(c.findOrigin(at.path), "%s", c.describeViolation(at))
				}
				return
			}
		}
	}
	if len(s.fields) > 0 {
		c.validateSection(s, at.value, at.path)
	}
}

// validateElements checks the elements of a list or map.
func (c validator) validateElements(s *shape, section reflect.Value, at violation, rules []string) {
	for key, value := range at.value.Seq2() {
		c.validateValue(s.elem, section, violation{path: fmt.Sprintf("%s[%v]", at.path, key), value: value}, rules)
	}
}

// isKnownRule reports whether a tag may have the rule.
func isKnownRule(name string) bool {
	switch name {
	case "omitempty", "dive", "required", "required_with", "oneof", "gt", "gte", "min", "lt", "lte", "max", "url", "http_url", "hostname_rfc1123":
		return true
	}
	return false
}

// isViolated reports whether the value breaks the rule. Parameters name fields of section.
func (v violation) isViolated(parentSection reflect.Value) bool {
	switch v.rule {
	case "required":
		return !isGiven(v.value)
	case "required_with":
		return isGiven(parentSection.FieldByName(v.param)) && !isGiven(v.value)
	case "oneof":
		return !slices.Contains(strings.Fields(v.param), fmt.Sprint(v.value))
	case "gt":
		return compareValueOrLengthWithLimit(v.value, v.param) <= 0
	case "gte", "min":
		return compareValueOrLengthWithLimit(v.value, v.param) < 0
	case "lt":
		return compareValueOrLengthWithLimit(v.value, v.param) >= 0
	case "lte", "max":
		return compareValueOrLengthWithLimit(v.value, v.param) > 0
	case "url":
		return !isURL(v.value.String())
	case "http_url":
		return !isHTTPURL(v.value.String())
	case "hostname_rfc1123":
		return !hostName.MatchString(v.value.String())
	}
	panic(fmt.Sprintf("settings: %q has the rule %q, which checkTags did not refuse", v.path, v.rule))
}

// isURL reports whether a text is a URL with a scheme and something after it.
func isURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return false
	}
	return u.Host != "" || u.Opaque != "" || u.Fragment != ""
}

// isHTTPURL reports whether a text is a URL with the scheme http or https.
func isHTTPURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && isURL(text) && (u.Scheme == "http" || u.Scheme == "https")
}

// hostName matches a host name of RFC 1123.
var hostName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9-]{0,62}(\.[a-zA-Z0-9][a-zA-Z0-9-]{0,62})*$`)

// isGiven reports whether a value is given. An empty list is.
func isGiven(v reflect.Value) bool {
	if k := v.Kind(); k == reflect.Slice || k == reflect.Map {
		return !v.IsNil()
	}
	return !v.IsZero()
}

// compareValueOrLengthWithLimit compares a number, or the length of a text, list or map, with a limit.
func compareValueOrLengthWithLimit(v reflect.Value, limit string) int {
	if d, err := time.ParseDuration(limit); err == nil && v.Type() == reflect.TypeFor[time.Duration]() {
		return cmp.Compare(v.Int(), int64(d))
	}
	most, err := strconv.ParseFloat(limit, 64)
	if err != nil {
		panic(fmt.Sprintf("settings: the limit %q of a rule is no number", limit))
	}
	switch {
	case v.CanInt():
		return cmp.Compare(float64(v.Int()), most)
	case v.CanUint():
		return cmp.Compare(float64(v.Uint()), most)
	case v.CanFloat():
		return cmp.Compare(v.Float(), most)
	case v.Kind() == reflect.String:
		return cmp.Compare(float64(utf8.RuneCountInString(v.String())), most)
	}
	return cmp.Compare(float64(v.Len()), most)
}

// hasProblemAtOrAbove reports whether a path, or one of its parents, has a problem.
func hasProblemAtOrAbove(bad map[string]bool, path string) bool {
	for hasParent := true; hasParent; path, hasParent = parentPath(path) {
		if bad[path] {
			return true
		}
	}
	return false
}

// parentPath returns the path of the section, list or map that contains the value at path.
func parentPath(path string) (parent string, ok bool) {
	i := strings.LastIndexAny(path, ".[")
	if i < 0 {
		return "", false
	}
	return path[:i], true
}

// findOrigin returns the source of a value: its position in the file, or that of the setting that
// contains it.
func (c validator) findOrigin(path string) Origin {
	at := path
	for hasParent := true; hasParent; at, hasParent = parentPath(at) {
		if p, ok := c.loader.places[at]; ok {
			return c.loader.originInFile(p, path)
		}
		if o, ok := c.loader.origins[at]; ok {
			o.Key = path
			return o
		}
	}
	return Origin{Key: path, Source: FromDefault}
}

// describeViolation returns a message about the violated rule.
func (c validator) describeViolation(v violation) string {
	f := c.loader.root.findFieldAt(v.path)
	message := v.describeRule(c.loader.root)
	if strings.HasPrefix(v.rule, "required") {
		return message + describeWaysToSet(f)
	}
	if f != nil && f.shape.secret {
		return message
	}
	switch got := v.value.Interface().(type) {
	case string:
		message += fmt.Sprintf("; got %q", got)
	case fmt.Stringer:
		message += fmt.Sprintf("; got %s", got)
	default:
		if k := v.value.Kind(); k != reflect.Slice && k != reflect.Map && k != reflect.Struct {
			message += fmt.Sprintf("; got %v", got)
		}
	}
	if v.rule == "oneof" {
		if best := Nearest(fmt.Sprint(v.value), strings.Fields(v.param)); best != "" {
			message += fmt.Sprintf("; did you mean %q?", best)
		}
	}
	return message
}

// describeRule returns a rule as a sentence that continues the name of the setting.
func (v violation) describeRule(root *shape) string {
	switch v.rule {
	case "required":
		return "is required"
	case "required_with":
		return fmt.Sprintf("is required together with %q", root.findSiblingKey(v.path, v.param))
	case "oneof":
		return "must be one of " + strings.Join(strings.Fields(v.param), ", ")
	case "url", "http_url":
		return `must be a URL such as "http://host:8080"`
	case "hostname_rfc1123":
		return "must be a host name of letters, digits, hyphens and dots"
	}
	return v.describeLimit()
}

// describeLimit returns the text of a comparison with a constant: of the value, or of its length.
func (v violation) describeLimit() string {
	what := formatComparison(v.rule)
	switch k := v.value.Kind(); {
	case k == reflect.String:
		return fmt.Sprintf("must have %s %s characters", what, v.param)
	case k == reflect.Slice || k == reflect.Map:
		return fmt.Sprintf("must have %s %s entries", what, v.param)
	case v.value.Type() == reflect.TypeFor[time.Duration]() && v.param == "0":
		return "must be " + what + " 0s"
	}
	return "must be " + what + " " + v.param
}

func formatComparison(ruleName string) string {
	switch ruleName {
	case "gt":
		return "more than"
	case "gte", "min":
		return "at least"
	case "lt":
		return "less than"
	default:
		return "at most"
	}
}

// describeWaysToSet returns the names of the sources for a setting.
func describeWaysToSet(f *field) string {
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

// findFieldAt returns the field at a path, ignoring the indexes of lists and maps; nil if the path has
// no field.
func (s *shape) findFieldAt(path string) *field {
	var f *field
	for key := range strings.SplitSeq(stripListIndexes(path), ".") {
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

// findSiblingKey returns the key of the field with a Go name next to the one at path.
func (s *shape) findSiblingKey(path, goName string) string {
	if i := strings.LastIndexByte(stripListIndexes(path), '.'); i >= 0 {
		if f := s.findFieldAt(stripListIndexes(path)[:i]); f != nil {
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

// stripListIndexes removes "[0]" and "[key]" from a path.
func stripListIndexes(path string) string {
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
