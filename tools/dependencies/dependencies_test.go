// Package dependencies_test checks docs/dependencies.md against each go.mod: each direct requirement
// must have a line, and each line a requirement.
package dependencies_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// A module holds the requirements of a go.mod.
type module struct {
	direct []string
	all    []string // with what others require
}

// required parses the go.mod at path.
func required(t *testing.T, path string) module {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	var m module
	for _, r := range mod.Require {
		m.all = append(m.all, r.Path)
		if !r.Indirect {
			m.direct = append(m.direct, r.Path)
		}
	}
	return m
}

// modules returns the modules of the repository, by folder. An embedded module has a go.mod.txt,
// because a folder with a go.mod cannot be embedded.
func modules(t *testing.T) map[string]module {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*go.mod", "*go.mod.txt").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]module{}
	for name := range strings.FieldsSeq(string(out)) {
		found[filepath.Dir(name)] = required(t, filepath.Join(root, name))
	}
	return found
}

// explained returns the modules that the page describes, by folder: a section whose title is a
// folder is about the module there.
func explained(text string) map[string][]string {
	found := map[string][]string{}
	folder := "."
	for line := range strings.Lines(text) {
		if title := regexp.MustCompile("^### `([^`]+)`").FindStringSubmatch(line); title != nil {
			folder = title[1]
			continue
		}
		for _, m := range regexp.MustCompile("`([a-z0-9.]+\\.[a-z]+/[^` ]+)`").FindAllStringSubmatch(line, -1) {
			found[folder] = append(found[folder], m[1])
		}
	}
	return found
}

func TestEveryDependencyIsExplained(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	page, found := explained(string(text)), modules(t)
	for folder := range page {
		if _, ok := found[folder]; !ok {
			t.Errorf("docs/dependencies.md has a section about %s, where no module is", folder)
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(found)) {
		for _, path := range found[folder].direct {
			covers := func(e string) bool { return path == e || strings.HasPrefix(path, e+"/") }
			if !slices.ContainsFunc(page[folder], covers) {
				t.Errorf("docs/dependencies.md does not say what %s is for in %s", path, folder)
			}
		}
		for _, e := range page[folder] {
			if !slices.ContainsFunc(found[folder].all, func(m string) bool { return m == e || strings.HasPrefix(e, m+"/") || strings.HasPrefix(m, e+"/") }) {
				t.Errorf("docs/dependencies.md explains %s, which the go.mod of %s does not require", e, folder)
			}
		}
	}
}
