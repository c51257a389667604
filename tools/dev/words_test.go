package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMeasureTree(t *testing.T) {
	texts, err := countIdiomInTree("testdata/tree")
	if err != nil {
		t.Fatal(err)
	}

	for name, tc := range map[string]struct {
		reason string
		got    UnclearPhraseCount
		words  int
		want   []string
	}{
		"Markdown": {
			reason: "prose is counted, also across a line break as one text; code is not",
			got:    texts.Markdown, words: 24,
			want: []string{"page.md:3 by itself", "page.md:3 nobody", "page.md:3 told", "page.md:3 what became of", "page.md:3 whoever", "page.md:11 there is no"},
		},
		"Strings": {
			reason: "errors, settings and help are counted once each; comparisons and other fields are not",
			got:    texts.Strings, words: 21,
			want: []string{
				"code.go:11 nobody", "code.go:11 what is", "code.go:16 there is none", "code.go:18 has it", "code.go:18 nobody",
				"code.go:18 somebody", "code.go:18 told", "code.go:21 tell",
			},
		},
		"Comments": {
			reason: "comments of generated files are not counted",
			got:    texts.Comments, words: 16,
			want: []string{"code.go:1 what is", "code.go:10 goes by", "code.go:10 of its own", "code.go:14 told"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.got.Words != tc.words {
				t.Errorf("%s: %d words, want %d", tc.reason, tc.got.Words, tc.words)
			}
			var got []string
			for _, m := range tc.got.Matches {
				got = append(got, fmt.Sprintf("%s:%d %s", m.File, m.Line, m.Phrase))
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestIdiomAboveTheLimitFails(t *testing.T) {
	var out bytes.Buffer
	err := printAndCheckIdiomRates(&out, "testdata/tree", 10, true)
	if err == nil || !strings.Contains(err.Error(), "markdown and strings") {
		t.Errorf("got error %v, want one that names markdown and strings", err)
	}
	if !strings.Contains(out.String(), "page.md:3:") {
		t.Errorf("the output does not show the matches:\n%s", out.String())
	}
	if err := printAndCheckIdiomRates(&out, "testdata/tree", 1e4, false); err != nil {
		t.Errorf("below the limit: %v", err)
	}
}
