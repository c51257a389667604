package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// parseFlagsAndMeasureIdiom measures how much private idiom a Go tree has: sixteen patterns, such as "whoever" and
// "what became of", per 10,000 words.
//
//	go run ./tools/dev words [-max n] [-show] [root]
//
// It prints one line for each kind of text: Markdown prose, the string literals that users read
// (errors, log messages, command help, metric help, settings), and comments. It fails if one of them
// exceeds -max. -show also prints each match with its place.
//
// The figures are an alarm and not the aim: a text can be free of the patterns and still be hard to
// read.
func parseFlagsAndMeasureIdiom(_ context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("words", flag.ExitOnError)
	limit := flags.Float64("max", 10, "highest `number` of matches per 10,000 words of each kind of text")
	show := flags.Bool("show", false, "print each match with its place")
	if err := flags.Parse(args); err != nil {
		return err
	}

	root := "."
	if flags.NArg() > 0 {
		root = flags.Arg(0)
	}
	return printAndCheckIdiomRates(out, root, *limit, *show)
}

func printAndCheckIdiomRates(out io.Writer, root string, limit float64, showMatches bool) error {
	texts, err := countIdiomInTree(root)
	if err != nil {
		return err
	}
	if showMatches {
		for _, m := range slices.Concat(texts.Markdown.Matches, texts.Strings.Matches, texts.Comments.Matches) {
			if _, err := fmt.Fprintf(out, "%s:%d: %s\n", m.File, m.Line, m.Text); err != nil {
				return err
			}
		}
	}

	var over []string
	for _, kind := range []struct {
		name  string
		count *UnclearPhraseCount
	}{
		{"markdown", &texts.Markdown},
		{"strings", &texts.Strings},
		{"comments", &texts.Comments},
	} {
		rate := kind.count.MatchesPer10000Words()
		_, err := fmt.Fprintf(out, "%s: %d matches in %d words, %.0f per 10,000\n", kind.name, len(kind.count.Matches), kind.count.Words, rate)
		if err != nil {
			return err
		}
		if rate > limit {
			over = append(over, kind.name)
		}
	}
	if len(over) > 0 {
		return fmt.Errorf(
			"more than %g matches per 10,000 words in %s: see each with 'go run ./tools/dev words -show' and write it in plain English",
			limit,
			strings.Join(over, " and "),
		)
	}
	return nil
}
