// Package etag reads the conditions of requests: If-Match and If-None-Match,
// as RFC 9110 has them.
package etag

import "strings"

// A List is what a condition names. The zero value is that of a request
// without one.
type List struct {
	// Given says that there is a condition, be it one that cannot be read.
	Given bool
	// Any stands for whatever there is.
	Any  bool
	tags []tag
}

type tag struct {
	value string
	weak  bool
}

// Parse reads the lines of a header. What cannot be read names nothing: so a
// conditional answer is a full one, and a conditional change is refused.
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

// skipSeparators leaves out what stands between tags.
func skipSeparators(s string) string { return strings.TrimLeft(s, " \t,") }

// cutTag reads one tag. A comma may be part of it.
func cutTag(s string) (t tag, rest string, ok bool) {
	s, t.weak = strings.CutPrefix(s, "W/")
	if s, ok = strings.CutPrefix(s, `"`); !ok {
		return t, "", false
	}
	t.value, rest, ok = strings.Cut(s, `"`)
	return t, rest, ok
}

// Quote is the tag as a header has it.
func Quote(value string) string { return `"` + value + `"` }

// Find gives the first tag that is one of those that is looks for. A weak tag is as
// good as any, which is right for If-None-Match.
func (l List) Find(is func(value string) bool) (string, bool) {
	for _, t := range l.tags {
		if is(t.value) {
			return t.value, true
		}
	}
	return "", false
}

// Allows reports whether something that has the tag may be changed, which is
// what If-Match says: there is no condition, or it names the tag, and not
// as a weak one.
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
