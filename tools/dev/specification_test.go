package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCommitted compares the committed pieces with the specifications. It needs
// SPECIFICATION_DIR, the folder that holds them.
func TestCommitted(t *testing.T) {
	from := os.Getenv("SPECIFICATION_DIR")
	if from == "" {
		t.Skip("SPECIFICATION_DIR is not set; it names the folder that holds the specifications")
	}
	want, err := cutSpecificationExcerpts(from)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range committed(t) {
		if diff := cmp.Diff(string(want[name]), string(text)); diff != "" {
			t.Errorf("%s (-specification +committed):\n%s", name, diff)
		}
	}
}

// TestEveryPieceIsCommitted checks that the folder contains exactly the pieces.
func TestEveryPieceIsCommitted(t *testing.T) {
	var want []string
	for _, p := range listSpecificationExcerpts() {
		want = append(want, p.file)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(committed(t)))); diff != "" {
		t.Errorf("files of %s (-want +got):\n%s", pieceFolder, diff)
	}
}

// committed returns the texts below the folder, by name.
func committed(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	root := filepath.Join("..", "..", pieceFolder)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // a file of this repository
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		files[filepath.ToSlash(name)] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCut(t *testing.T) {
	const text = "intro\n```\nfirst\n```\n- list:\n  ```yaml\n  a: 1\n  ```\n```yaml\n# one\na: 1\n\n---\n# two\nb: 2 \n```\n| Name | Of |\n|---|---|\n| a | b |\n\n### Tests\n\nmore\n### End\n"
	cases := map[string]struct {
		reason string
		piece  specificationExcerpt
		want   string
		fails  bool
	}{
		"Block":      {reason: "what stands between the fences", piece: specificationExcerpt{block: 1}, want: "first\n"},
		"Indented":   {reason: "byte for byte", piece: specificationExcerpt{block: 2}, want: "  a: 1\n"},
		"Documents":  {reason: "all of them", piece: specificationExcerpt{block: 3}, want: "# one\na: 1\n\n---\n# two\nb: 2 \n"},
		"First":      {reason: "up to the separator", piece: specificationExcerpt{block: 3, document: 1}, want: "# one\na: 1\n\n"},
		"Second":     {reason: "after the separator", piece: specificationExcerpt{block: 3, document: 2}, want: "# two\nb: 2 \n"},
		"Table":      {reason: "up to the empty line", piece: specificationExcerpt{first: "| Name"}, want: "| Name | Of |\n|---|---|\n| a | b |\n"},
		"Section":    {reason: "up to a heading", piece: specificationExcerpt{first: "### Tests", after: "### End"}, want: "### Tests\n\nmore\n"},
		"NoBlock":    {reason: "the specification is another", piece: specificationExcerpt{block: 4}, fails: true},
		"NoDocument": {reason: "the specification is another", piece: specificationExcerpt{block: 3, document: 3}, fails: true},
		"NoLine":     {reason: "the specification is another", piece: specificationExcerpt{first: "## Nope"}, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tc.piece.cutExcerpt([]byte(text))
			if string(got) != tc.want || (err != nil) != tc.fails {
				t.Errorf("%s: got %q and %v, want %q", tc.reason, got, err, tc.want)
			}
		})
	}
}
