package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testsByPackage returns the names of all tests in the form package.TestName, by the name and by the
// folder of the package.
func testsByPackage(t *testing.T) map[string]bool {
	t.Helper()
	args := []string{"-C", repository, "ls-files", "--cached", "--others", "--exclude-standard", "*_test.go"}
	out, err := exec.CommandContext(t.Context(), "git", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	clause, function := regexp.MustCompile(`(?m)^package (\w+)`), regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	tests := map[string]bool{}
	for name := range strings.FieldsSeq(string(out)) {
		text, err := os.ReadFile(filepath.Join(repository, name))
		if os.IsNotExist(err) {
			continue // it is deleted, and the index does not know yet
		}
		if err != nil {
			t.Fatal(err)
		}
		in := clause.FindStringSubmatch(string(text))
		if in == nil {
			t.Fatalf("%s has no package clause", name)
		}
		for _, f := range function.FindAllStringSubmatch(string(text), -1) {
			for _, p := range []string{strings.TrimSuffix(in[1], "_test"), path.Base(path.Dir(name)), path.Dir(name)} {
				tests[p+"."+f[1]] = true
			}
		}
	}
	return tests
}

// TestCitedTestsExist checks that each test that a page cites as package.TestName exists. A page may
// give packages other names: "`worker` is `internal/clusterworker`" or "`app` (`internal/app/apiapp`)".
func TestCitedTestsExist(t *testing.T) {
	tests := testsByPackage(t)
	citation := regexp.MustCompile("`(\\w+)\\.((?:Test|Fuzz|Benchmark)\\w+)")
	alias := regexp.MustCompile("`(\\w+)` (?:is |\\()`([\\w/]+)`")
	cited := 0
	for name, text := range pages(t) {
		packages := map[string]string{}
		for _, a := range alias.FindAllStringSubmatch(text, -1) {
			packages[a[1]] = a[2]
		}
		for _, c := range citation.FindAllStringSubmatch(text, -1) {
			cited++
			in := c[1]
			for range 2 { // one name may be given by another
				if p, ok := packages[in]; ok {
					in = p
				}
			}
			if !tests[in+"."+c[2]] && !tests[c[1]+"."+c[2]] {
				t.Errorf("%s cites %s.%s, which does not exist", name, c[1], c[2])
			}
		}
	}
	if cited < 100 {
		t.Errorf("only %d citations found", cited)
	}
}
