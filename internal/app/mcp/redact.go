package mcp

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/fleetloop/fleetloop/changeevent"
)

// Names with values inside a line, such as the parameters of an execution: as a member of an object in JSON, or
// as a word of a command line.
var (
	jsonPair = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"[ \t]*:[ \t]*(?:"(?:[^"\\\n]|\\.)*"|\{[^{}\n]*\}|\[[^\[\]\n]*\]|[^\s,}\]]+)`)
	wordPair = regexp.MustCompile(`[\w.-]+=(?:'[^'\n]*'|"(?:[^"\\\n]|\\.)*"|\\.|[^\s'"\\])+`)
)

// replaceInvisible replaces characters that people do not see, such as control characters, marks of the text
// direction and tags. They could carry instructions that a person who reads along does not notice.
func replaceInvisible(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// redactSecrets returns the output of a command without what may be secret.
func redactSecrets(text string) string {
	for _, pattern := range []*regexp.Regexp{jsonPair, wordPair} {
		text = pattern.ReplaceAllStringFunc(text, func(pair string) string {
			if changeevent.RedactText(pair) == pair {
				return pair
			}
			return pair[:strings.IndexAny(pair, ":=")+1] + changeevent.Redacted
		})
	}
	return changeevent.RedactText(text)
}
