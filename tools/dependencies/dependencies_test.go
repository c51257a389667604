package dependencies_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// required lists the modules that go.mod requires directly.
func required(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", "../../go.mod").Output()
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
	var list []string
	for _, r := range mod.Require {
		if !r.Indirect {
			list = append(list, r.Path)
		}
	}
	return list
}

func TestEveryDependencyIsExplained(t *testing.T) {
	text, err := os.ReadFile("../../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	var explained []string
	for _, m := range regexp.MustCompile("`([a-z0-9.]+\\.[a-z]+/[^` ]+)`").FindAllStringSubmatch(string(text), -1) {
		explained = append(explained, m[1])
	}
	modules := required(t)
	for _, module := range modules {
		covers := func(e string) bool { return module == e || strings.HasPrefix(module, e+"/") }
		if !slices.ContainsFunc(explained, covers) {
			t.Errorf("docs/dependencies.md does not say what %s is for", module)
		}
	}
	for _, e := range explained {
		if !slices.ContainsFunc(modules, func(m string) bool { return strings.HasPrefix(e, m) }) {
			t.Errorf("docs/dependencies.md explains %s, which go.mod does not require", e)
		}
	}
}
