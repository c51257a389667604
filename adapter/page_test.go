package adapter_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPageShowsTheExample holds that the code of the how-to guide is that of a new adapter or of the example,
// which are compiled and run.
func TestPageShowsTheExample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/how-to/write-an-adapter.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile("../internal/app/cli/adaptertemplate/reconcile.go.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Errorf("the page has %d blocks of Go, want 2", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(string(template)+string(example), "\n"+b[1]) {
			t.Errorf("neither a new adapter nor the example contains this block of the page:\n%s", b[1])
		}
	}
}

// TestPackageDocShowsTheAPI holds that the example of the package documentation uses functions of the
// example, so that it compiles after their names are replaced.
func TestPackageDocShowsTheAPI(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`adapter\.[A-Z]\w+`).FindAllString(string(doc), -1) {
		if !strings.Contains(string(example), name) {
			t.Errorf("the package documentation uses %s, which the example does not compile", name)
		}
	}
}
