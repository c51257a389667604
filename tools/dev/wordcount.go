package main

import (
	"regexp"
	"strings"
)

// Match is one occurrence of a pattern.
type Match struct {
	File   string
	Line   int
	Phrase string // the matched text, in lower case
	Text   string // the phrase with its context
}

// UnclearPhraseCount holds the matches in one kind of text. Create it with newUnclearPhraseCount.
type UnclearPhraseCount struct {
	Words   int
	Matches []Match

	patterns []*regexp.Regexp
}

// MatchesPer10000Words returns the number of matches per 10,000 words. It is 0 without words.
func (c *UnclearPhraseCount) MatchesPer10000Words() float64 {
	return 1e4 * float64(len(c.Matches)) / float64(max(c.Words, 1))
}

// CountWordsAndMatches counts the words and matches of text, which begins at a line of a file.
func (c *UnclearPhraseCount) CountWordsAndMatches(file string, line int, text string) {
	lower := strings.ToLower(text)
	c.Words += len(strings.Fields(lower))
	for _, pattern := range c.patterns {
		for _, at := range pattern.FindAllStringIndex(lower, -1) {
			begin, end := max(0, at[0]-30), min(len(lower), at[1]+30)
			c.Matches = append(c.Matches, Match{
				File:   file,
				Line:   line + strings.Count(lower[:at[0]], "\n"),
				Phrase: strings.Join(strings.Fields(lower[at[0]:at[1]]), " "),
				Text:   strings.Join(strings.Fields(strings.ToValidUTF8(lower[begin:end], "")), " "),
			})
		}
	}
}

// newUnclearPhraseCount makes a count of the phrases that stand for a missing standard term or
// hide the subject of a sentence.
func newUnclearPhraseCount() UnclearPhraseCount {
	return UnclearPhraseCount{patterns: compileWordPatterns(
		`whoever`, `nobody`, `somebody`, `what became of`, `what comes? of`,
		`tell|tells|told|telling`, `is to be|are to be`, `(?:in )?its turn`,
		`what is|what was|what are`, `that there (?:is|are)`, `(?:have|has) (?:it|them|him)`,
		`by itself|by themselves`, `has [a-z]+ (?:be|go|end|begin|wait|run|stop|look)`,
		`of (?:its|their|our) own`, `(?:goes|go|went) by`, `there is (?:none|no)`,
	)}
}

func compileWordPatterns(expressions ...string) []*regexp.Regexp {
	var out []*regexp.Regexp
	for _, e := range expressions {
		out = append(out, regexp.MustCompile(`\b(?:`+e+`)\b`))
	}
	return out
}
