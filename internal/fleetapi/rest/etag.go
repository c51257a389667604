package rest

import "strings"

// An ETagList holds the tags of a condition. The zero value stands for a request without a
// condition.
type ETagList struct {
	// Given reports whether there is a condition, even one that cannot be parsed.
	Given bool
	// Any matches any existing resource.
	Any  bool
	tags []etag
}

type etag struct {
	value string
	weak  bool
}

// ParseETags parses the lines of a header. Malformed input matches no tag: a conditional read is
// then answered in full, and a conditional change is refused.
func ParseETags(headerLines []string) ETagList {
	l := ETagList{Given: len(headerLines) > 0}
	for _, rest := range headerLines {
		for rest = skipETagSeparators(rest); rest != ""; rest = skipETagSeparators(rest) {
			if after, ok := strings.CutPrefix(rest, "*"); ok {
				l.Any, rest = true, after
				continue
			}
			t, after, ok := cutETag(rest)
			if !ok {
				break
			}
			l.tags, rest = append(l.tags, t), after
		}
	}
	return l
}

// skipETagSeparators skips the separators between tags.
func skipETagSeparators(s string) string { return strings.TrimLeft(s, " \t,") }

// cutETag parses one tag. A tag may contain commas.
func cutETag(s string) (t etag, rest string, ok bool) {
	s, t.weak = strings.CutPrefix(s, "W/")
	if s, ok = strings.CutPrefix(s, `"`); !ok {
		return t, "", false
	}
	t.value, rest, ok = strings.Cut(s, `"`)
	return t, rest, ok
}

// QuoteETag returns the tag in the form of a header.
func QuoteETag(value string) string { return `"` + value + `"` }

// Find returns the first tag for which matches returns true. Weak tags match too, which is right for
// If-None-Match.
func (l ETagList) Find(matches func(value string) bool) (tag string, found bool) {
	for _, t := range l.tags {
		if matches(t.value) {
			return t.value, true
		}
	}
	return "", false
}

// AllowsIfMatch reports whether If-Match allows a change of something with the tag. It does without a
// condition, or if the condition contains the tag, and not as a weak one.
func (l ETagList) AllowsIfMatch(tag string) bool {
	if !l.Given || l.Any {
		return true
	}
	for _, t := range l.tags {
		if !t.weak && t.value == tag {
			return true
		}
	}
	return false
}
