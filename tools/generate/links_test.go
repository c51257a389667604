package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const repository = "../.."

// Limits of documents for readers.
const (
	maxReadmeLines = 150
	maxWords       = 60_000 // of all Markdown outside docs/reference
)

// pages returns the text of all Markdown files of the repository by their paths.
func pages(t *testing.T) map[string]string {
	t.Helper()
	args := []string{"-C", repository, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"}
	out, err := exec.CommandContext(t.Context(), "git", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for name := range strings.FieldsSeq(string(out)) {
		text, err := os.ReadFile(filepath.Join(repository, name))
		if os.IsNotExist(err) {
			continue // it is deleted, and the index does not know yet
		}
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	if len(texts) < 100 {
		t.Fatalf("only %d pages were found", len(texts))
	}
	return texts
}

// prose removes code blocks and spans of code.
func prose(text string) string {
	text = regexp.MustCompile("(?ms)^ *```.*?^ *```").ReplaceAllString(text, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "")
}

// anchors returns the fragments by which a page's headings can be linked, as
// GitHub makes them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	text = regexp.MustCompile("(?ms)^ *```.*?^ *```").ReplaceAllString(text, "")
	for _, m := range regexp.MustCompile(`(?m)^#{1,6} +(.*?)\s*$`).FindAllStringSubmatch(text, -1) {
		title := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		slug := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(title), "")
		slug = strings.ReplaceAll(slug, " ", "-")
		name := slug
		for i := 1; found[name]; i++ {
			name = fmt.Sprintf("%s-%d", slug, i)
		}
		found[name] = true
	}
	for _, m := range regexp.MustCompile(`<a (?:id|name)="([^"]+)"`).FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	return found
}

// targets returns the relative links of a page as paths in the repository, with
// their fragments.
func targets(page, text string) []string {
	var found []string
	for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(prose(text), -1) {
		link := m[1]
		if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
			continue
		}
		file, fragment, _ := strings.Cut(link, "#")
		if file == "" {
			file = page
		} else {
			file = path.Join(path.Dir(page), file)
		}
		if fragment != "" {
			file += "#" + fragment
		}
		found = append(found, file)
	}
	return found
}

// TestLinks checks that each relative link of a page leads to a file or folder
// of the repository, and its fragment to a heading.
func TestLinks(t *testing.T) {
	texts := pages(t)
	checked := 0
	for _, page := range slices.Sorted(maps.Keys(texts)) {
		for _, target := range targets(page, texts[page]) {
			checked++
			file, fragment, _ := strings.Cut(target, "#")
			if _, err := os.Stat(filepath.Join(repository, file)); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, file)
				continue
			}
			text, isPage := texts[file]
			if fragment != "" && isPage && !anchors(text)[fragment] {
				t.Errorf("%s links to %s, which has no heading #%s", page, file, fragment)
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d links were found", checked)
	}
}

// TestIndex checks that docs/README.md links every page below docs, itself or,
// for decisions, runbooks and conformance, by an index that it links.
func TestIndex(t *testing.T) {
	const index = "docs/README.md"
	texts := pages(t)
	linked := map[string]bool{}
	for _, target := range targets(index, texts[index]) {
		file, _, _ := strings.Cut(target, "#")
		linked[file] = true
	}
	for _, list := range []string{"docs/adr/README.md", "docs/reference/alerts.md"} {
		if !linked[list] {
			t.Errorf("%s does not link %s", index, list)
		}
		for _, target := range targets(list, texts[list]) {
			linked[target] = true
		}
	}
	for _, page := range slices.Sorted(maps.Keys(texts)) {
		if strings.HasPrefix(page, "docs/") && page != index && !linked[page] {
			t.Errorf("%s does not lead to %s", index, page)
		}
	}
}

// TestReadmeIsShort checks that the README can be read in a few minutes.
func TestReadmeIsShort(t *testing.T) {
	if n := strings.Count(pages(t)["README.md"], "\n"); n > maxReadmeLines {
		t.Errorf("README.md has %d lines, want at most %d", n, maxReadmeLines)
	}
}

func TestAnchors(t *testing.T) {
	got := anchors("# The `x` API: what's new?\n\n```sh\n# no heading\n```\n## Retry\n## Retry\n<a id=\"own\"></a>\n")
	for _, want := range []string{"the-x-api-whats-new", "retry", "retry-1", "own"} {
		if !got[want] {
			t.Errorf("no anchor %q in %v", want, got)
		}
	}
	if len(got) != 4 {
		t.Errorf("anchors are %v", got)
	}
}

// TestMarkdownIsShort checks that the documentation outside docs/reference can
// be read in an afternoon.
func TestMarkdownIsShort(t *testing.T) {
	words := 0
	for page, text := range pages(t) {
		if !strings.HasPrefix(page, "docs/reference/") {
			words += len(strings.Fields(text))
		}
	}
	if words > maxWords {
		t.Errorf("all Markdown outside docs/reference has %d words, want at most %d", words, maxWords)
	}
}
