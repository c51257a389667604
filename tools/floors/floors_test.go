// Package floors_test tests that the architecture's lint rules work: its test adds one violation per
// depguard rule and denied package to a scratch module, and expects a report for each.
//
// Otherwise a rule whose files pattern matches nothing would look like compliance.
package floors_test

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const module = "github.com/fleetloop/fleetloop"

// rule is one depguard rule of .golangci.yml.
type rule struct {
	Files []string `yaml:"files"`
	Deny  []struct {
		Pkg  string `yaml:"pkg"`
		Desc string `yaml:"desc"`
	} `yaml:"deny"`
}

// newRules reads the rules from the project's configuration, and returns the same configuration
// with depguard as its only linter.
func newRules(t *testing.T) (map[string]rule, []byte) {
	t.Helper()
	raw, err := os.ReadFile("../../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	var cfg struct {
		Linters struct {
			Settings struct {
				Depguard yaml.Node `yaml:"depguard"`
			} `yaml:"settings"`
		} `yaml:"linters"`
	}
	if err := yaml.Unmarshal(raw, &cfg); err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Rules map[string]rule `yaml:"rules"`
	}
	if err := cfg.Linters.Settings.Depguard.Decode(&rules); err != nil {
		t.Fatal(err)
	}
	only, err := yaml.Marshal(map[string]any{
		"version": "2",
		"linters": map[string]any{
			"default":  "none",
			"enable":   []string{"depguard"},
			"settings": map[string]any{"depguard": &cfg.Linters.Settings.Depguard},
		},
		"issues": map[string]int{"max-issues-per-linter": 0, "max-same-issues": 0},
	})
	if err != nil {
		t.Fatal(err)
	}
	return rules.Rules, only
}

// places returns the folders in which a rule must apply: one for each alternative of its positive
// patterns, both directly in the folder and below it.
func places(r rule) []string {
	var dirs []string
	for _, pattern := range r.Files {
		switch {
		case pattern == "$all" || strings.HasPrefix(pattern, "!"):
			if !slices.Contains(dirs, "internal/elsewhere") {
				dirs = append(dirs, "internal/elsewhere")
			}
		default:
			dirs = slices.DeleteFunc(dirs, func(d string) bool { return d == "internal/elsewhere" })
			for _, dir := range expand(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(pattern, "**/"), "${base-path}/"), "/**")) {
				dirs = append(dirs, dir, dir+"/below")
			}
			return dirs
		}
	}
	return dirs
}

// expand returns the alternatives of one {a,b} group.
func expand(pattern string) []string {
	before, rest, found := strings.Cut(pattern, "{")
	if !found {
		return []string{pattern}
	}
	group, after, _ := strings.Cut(rest, "}")
	var out []string
	for alt := range strings.SplitSeq(group, ",") {
		out = append(out, before+alt+after)
	}
	return out
}

// scratch is a module with planted violations.
type scratch struct {
	t    *testing.T
	dir  string
	stub map[string]bool // external packages that have a stand-in
}

func (s scratch) write(name, text string) {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// provide returns an importable package below pkg: a stand-in inside the module or a vendored one.
// It has no imports, so that violations never form a cycle.
func (s scratch) provide(pkg string) string {
	if !strings.Contains(pkg, ".") {
		return strings.TrimSuffix(pkg, "$") // the standard library's own; the suffix excludes packages below
	}
	pkg += "/leaf"
	switch {
	case s.stub[pkg]:
	case strings.HasPrefix(pkg, module+"/"):
		s.write(strings.TrimPrefix(pkg, module+"/")+"/standin.go", "package standin\n")
	default:
		s.write("vendor/"+pkg+"/standin.go", "package standin\n")
	}
	s.stub[pkg] = true
	return pkg
}

// vendored writes go.mod and vendor/modules.txt for the stand-ins.
func (s scratch) vendored() {
	var mod, list strings.Builder
	fmt.Fprintf(&mod, "module %s\n\ngo 1.26\n\n", module)
	for pkg := range s.stub {
		if strings.HasPrefix(pkg, module+"/") {
			continue
		}
		fmt.Fprintf(&mod, "require %s v0.0.0\n", pkg)
		fmt.Fprintf(&list, "# %s v0.0.0\n## explicit; go 1.26\n%s\n", pkg, pkg)
	}
	s.write("go.mod", mod.String())
	s.write("vendor/modules.txt", list.String())
}

func TestEachRuleBites(t *testing.T) {
	linter := os.Getenv("GOLANGCI_LINT")
	if linter == "" {
		t.Fatal("GOLANGCI_LINT is not set: run the tests with make, or set it to the golangci-lint binary")
	}
	rules, config := newRules(t)
	s := scratch{t: t, dir: t.TempDir(), stub: map[string]bool{}}
	s.write(".golangci.yml", string(config))

	type planted struct{ rule, file, desc string }
	var plants []planted
	for name, r := range rules {
		for _, dir := range places(r) {
			for i, deny := range r.Deny {
				pkg := s.provide(deny.Pkg)
				file := path.Join(dir, fmt.Sprintf("%s_%d.go", strings.ReplaceAll(name, "-", "_"), i))
				s.write(file, fmt.Sprintf("package standin\n\nimport _ %q\n", pkg))
				plants = append(plants, planted{rule: name, file: file, desc: deny.Desc})
			}
		}
	}
	s.vendored()

	cmd := exec.CommandContext(t.Context(), linter, "run", "--output.text.print-issued-lines=false", "--allow-parallel-runners", "./...")
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=vendor", "GOLANGCI_LINT_CACHE="+filepath.Join(s.dir, "cache"))
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("golangci-lint: %v\n%s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	for _, p := range plants {
		bites := func(line string) bool {
			return strings.HasPrefix(line, p.file+":") && strings.Contains(line, "from list '"+p.rule+"'") && strings.Contains(line, p.desc)
		}
		if !slices.ContainsFunc(lines, bites) {
			t.Errorf("rule %s: a planted violation in %s is not reported", p.rule, p.file)
		}
	}
	t.Logf("%d rules, %d planted violations", len(rules), len(plants))
	if t.Failed() {
		t.Logf("golangci-lint said:\n%s", out)
	}
}
