package history

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// moduleRoot is the folder of the module, from that of this package.
const moduleRoot = "../../.."

// TestPromisesElsewhere holds that the tests that the report names exist.
func TestPromisesElsewhere(t *testing.T) {
	t.Parallel()
	for _, e := range PromisesCheckedElsewhere() {
		for _, test := range e.Tests {
			dir, name, _ := strings.Cut(test, " ")
			if !hasTest(t, filepath.Join(moduleRoot, dir), name) {
				t.Errorf("%s: package %s has no test %s", e.Promise, dir, name)
			}
		}
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.Contains(readSource(t, path), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}

func readSource(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRacesAndVulnerabilities holds that the commands for R16 do what the report says.
func TestRacesAndVulnerabilities(t *testing.T) {
	t.Parallel()
	for path, patterns := range map[string][]string{
		"Makefile":      {`(?m)^GO_TEST := .*go test -race`, `(?m)^TEST_PURE.*GO_TEST`, `(?m)^test:`, `(?m)^vuln: .*\n.*GOVULNCHECK`},
		".golangci.yml": {`(?m)^ +- gosec$`},
	} {
		text := readSource(t, filepath.Join(moduleRoot, path))
		for _, pattern := range patterns {
			if !regexp.MustCompile(pattern).MatchString(text) {
				t.Errorf("%s has nothing like %s", path, pattern)
			}
		}
	}
}
