// Package etag parses the conditions of requests: If-Match and If-None-Match, as defined by RFC
// 9110.
package etag

import "strings"

// A List holds the tags of a condition. The zero value stands for a request without a condition.
type List struct {
	// Given reports whether there is a condition, even one that cannot be parsed.
	Given bool
	// Any matches any existing resource.
	Any  bool
	tags []tag
}

type tag struct {
	value string
	weak  bool
}

// Parse parses the lines of a header. Malformed input matches no tag: a conditional read is then
// answered in full, and a conditional change is refused.
func Parse(lines []string) List {
	l := List{Given: len(lines) > 0}
	for _, rest := range lines {
		for rest = skipSeparators(rest); rest != ""; rest = skipSeparators(rest) {
			if after, ok := strings.CutPrefix(rest, "*"); ok {
				l.Any, rest = true, after
				continue
			}
			t, after, ok := cutTag(rest)
			if !ok {
				break
			}
			l.tags, rest = append(l.tags, t), after
		}
	}
	return l
}

// skipSeparators skips the separators between tags.
func skipSeparators(s string) string { return strings.TrimLeft(s, " \t,") }

// cutTag parses one tag. A tag may contain commas.
func cutTag(s string) (t tag, rest string, ok bool) {
	s, t.weak = strings.CutPrefix(s, "W/")
	if s, ok = strings.CutPrefix(s, `"`); !ok {
		return t, "", false
	}
	t.value, rest, ok = strings.Cut(s, `"`)
	return t, rest, ok
}

// Quote returns the tag in the form of a header.
func Quote(value string) string { return `"` + value + `"` }

// Find returns the first tag that satisfies is. Weak tags match too, which is right for
// If-None-Match.
func (l List) Find(is func(value string) bool) (string, bool) {
	for _, t := range l.tags {
		if is(t.value) {
			return t.value, true
		}
	}
	return "", false
}

// Allows reports whether If-Match allows a change of something with the tag. It does without a
// condition, or if the condition contains the tag, and not as a weak one.
func (l List) Allows(value string) bool {
	if !l.Given || l.Any {
		return true
	}
	for _, t := range l.tags {
		if !t.weak && t.value == value {
			return true
		}
	}
	return false
}
