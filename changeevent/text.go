package changeevent

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// ellipsis marks truncated text.
const ellipsis = "…"

// truncateText shortens text to at most limit characters. A rune outside the basic plane
// counts as two, as in UTF-16, because sinks count differently. Truncated text ends with
// an ellipsis, and no rune is split.
func truncateText(text string, maxUTF16Units int) string {
	if len(text) <= maxUTF16Units { // text never has more characters than bytes
		return text
	}
	used, kept := 0, 0 // kept is the end of the text that fits with an ellipsis
	for i, r := range text {
		used += utf16Width(r)
		if used > maxUTF16Units {
			if maxUTF16Units < 1 {
				return ""
			}
			return strings.TrimRight(text[:kept], " \n\t") + ellipsis
		}
		if used < maxUTF16Units {
			kept = i + utf8.RuneLen(r)
		}
	}
	return text
}

// escapeWithinLimit truncates and escapes text so that the result has at most limit characters.
// No escape sequence is split.
func escapeWithinLimit(text string, limit int, escape func(string) string) string {
	for room := limit; ; room /= 2 {
		if escaped := escape(truncateText(text, room)); room <= 1 || len(escaped) <= limit || utf16Len(escaped) <= limit {
			return escaped
		}
	}
}

func utf16Len(text string) int {
	n := 0
	for _, r := range text {
		n += utf16Width(r)
	}
	return n
}

func utf16Width(r rune) int {
	if r > 0xFFFF {
		return 2
	}
	return 1
}

// sanitizeText makes text valid. It replaces invalid UTF-8, noncharacters, and control
// characters other than line breaks and tabs, which cause problems in JSON, headers and
// displays.
func sanitizeText(text string) string {
	if isCleanASCII(text) {
		return text
	}
	return strings.Map(replaceControlOrInvalidRune, strings.ToValidUTF8(text, string(utf8.RuneError)))
}

// sanitizeLine is sanitizeText for one line, with single spaces between words and none at
// either end.
func sanitizeLine(text string) string {
	if isCleanASCII(text) && !strings.ContainsAny(text, "\n\t") && !strings.Contains(text, "  ") {
		return strings.TrimSpace(text)
	}
	return strings.Join(strings.Fields(sanitizeText(text)), " ")
}

// isCleanASCII reports whether text is ASCII without control characters to replace, as nearly
// all text is.
func isCleanASCII(text string) bool {
	for i := range len(text) {
		if b := text[i]; b >= 0x7F || b < ' ' && b != '\n' && b != '\t' {
			return false
		}
	}
	return true
}

func replaceControlOrInvalidRune(r rune) rune {
	switch {
	case r == '\n' || r == '\t':
		return r
	case r == '\r':
		return -1 // the line feed of the same line break remains
	case unicode.IsControl(r), r == '\u2028', r == '\u2029':
		return ' '
	case r&0xFFFE == 0xFFFE, r >= 0xFDD0 && r <= 0xFDEF:
		return utf8.RuneError
	}
	return r
}
