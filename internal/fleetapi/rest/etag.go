package rest

import "strings"

// An ETagList holds the tags of a condition. The zero value stands for a request without a condition.
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

// ParseETagList parses the lines of a header. Malformed input matches no tag: a conditional read is
// then answered in full, and a conditional change is refused.
func ParseETagList(headerLines []string) ETagList {
	l := ETagList{Given: len(headerLines) > 0}
	for _, rest := range headerLines {
		for rest = trimETagSeparators(rest); rest != ""; rest = trimETagSeparators(rest) {
			if after, ok := strings.CutPrefix(rest, "*"); ok {
				l.Any, rest = true, after
				continue
			}
			t, after, ok := cutFirstETag(rest)
			if !ok {
				break
			}
			l.tags, rest = append(l.tags, t), after
		}
	}
	return l
}

func trimETagSeparators(s string) string { return strings.TrimLeft(s, " \t,") }

// cutFirstETag parses one tag. A tag may contain commas.
func cutFirstETag(s string) (tag etag, rest string, ok bool) {
	s, tag.weak = strings.CutPrefix(s, "W/")
	if s, ok = strings.CutPrefix(s, `"`); !ok {
		return tag, "", false
	}
	tag.value, rest, ok = strings.Cut(s, `"`)
	return tag, rest, ok
}

// QuoteETag returns the tag in the form of a header.
func QuoteETag(value string) string { return `"` + value + `"` }

// FindMatchingTag returns the first tag for which matches returns true. Weak tags match too, which is right for
// If-None-Match.
func (l ETagList) FindMatchingTag(matches func(value string) bool) (tag string, found bool) {
	for _, t := range l.tags {
		if matches(t.value) {
			return t.value, true
		}
	}
	return "", false
}

// SatisfiesIfMatch reports whether If-Match allows a change of something with the tag. It does without a
// condition, or if the condition contains the tag, and not as a weak one.
func (l ETagList) SatisfiesIfMatch(currentTag string) bool {
	if !l.Given || l.Any {
		return true
	}
	for _, t := range l.tags {
		if !t.weak && t.value == currentTag {
			return true
		}
	}
	return false
}
