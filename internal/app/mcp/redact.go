package mcp

import (
	"regexp"
	"strings"

	"github.com/fleetloop/fleetloop/changeevent"
)

// Names with values inside a line, such as the parameters of an execution: as a member of an object in JSON, or
// as a word of a command line.
var (
	jsonPair = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"[ \t]*:[ \t]*(?:"(?:[^"\\\n]|\\.)*"|\{[^{}\n]*\}|\[[^\[\]\n]*\]|[^\s,}\]]+)`)
	wordPair = regexp.MustCompile(`[\w.-]+=(?:'[^'\n]*'|"(?:[^"\\\n]|\\.)*"|\\.|[^\s'"\\])+`)
)

// redact returns the output of a command without what may be secret.
func redact(text string) string {
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
