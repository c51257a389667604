package kubebed

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestModule covers that the module has one release of Kubernetes with the libraries of
// the same release.
func TestModule(t *testing.T) {
	t.Parallel()
	text, err := modules.ReadFile("module/go.mod.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := "v0." + strings.TrimPrefix(KubernetesVersion(), "1.")
	found := regexp.MustCompile(`(?m)^\s*(k8s\.io/\S+) => (k8s\.io/\S+) (v\S+)$`).FindAllStringSubmatch(string(text), -1)
	if len(found) < 30 {
		t.Errorf("%d libraries are replaced, want all", len(found))
	}
	for _, m := range found {
		if m[1] != m[2] || m[3] != want {
			t.Errorf("%s is replaced by %s %s, want %s", m[1], m[2], m[3], want)
		}
	}
	wantFiles(t, kubernetesPrograms())
}

// TestGardenModule covers that the module of Gardener requires its nested module at the
// same release: Gardener itself replaces it by a folder that its archive does not
// contain.
func TestGardenModule(t *testing.T) {
	t.Parallel()
	const apis = "github.com/gardener/gardener/pkg/apis"
	text, err := modules.ReadFile("garden/go.mod.txt")
	if err != nil {
		t.Fatal(err)
	}
	if want := "replace " + apis + " => " + apis + " v" + GardenVersion() + "\n"; !strings.Contains(string(text), want) {
		t.Errorf("its go.mod lacks %q", want)
	}
	wantFiles(t, gardenerPrograms())
	if links := gardenerPrograms().linkNames(); len(links) > 0 {
		t.Errorf("the program would be replaced by links: %v", links)
	}
}

// TestFoldersAreApart covers that the sets have different folders.
func TestFoldersAreApart(t *testing.T) {
	t.Parallel()
	for s, want := range map[*programSet]string{
		kubernetesPrograms(): `^1\.\d+\.\d+-[a-z]+-[a-z0-9]+-[0-9a-f]{12}$`,
		gardenerPrograms():   `^gardener-1\.\d+\.\d+-[a-z]+-[a-z0-9]+-[0-9a-f]{12}$`,
	} {
		if k, err := s.cacheKey(); err != nil || !regexp.MustCompile(want).MatchString(k) {
			t.Errorf("the folder of %s is called %q, %v", s.title, k, err)
		}
	}
}

// wantFiles checks that the files of a set's module are those of a module.
func wantFiles(t *testing.T, s *programSet) {
	t.Helper()
	var names []string
	err := s.forEachFile(func(name string, content []byte) error {
		if strings.HasSuffix(name, ".txt") || len(content) == 0 {
			return fmt.Errorf("%s has %d bytes", name, len(content))
		}
		names = append(names, name)
		return nil
	})
	if err != nil || !slices.Contains(names, "go.mod") || !slices.Contains(names, "go.sum") || !slices.Contains(names, "main.go") {
		t.Errorf("the module of %s has %v: %v", s.title, names, err)
	}
}
