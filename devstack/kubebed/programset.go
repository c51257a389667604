package kubebed

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// modules are the modules of the programs. Their files end in .txt so that Go
// does not treat them as a part, or a neighbour, of this module.
//
//go:embed module garden
var modules embed.FS

// A set is a set of programs that are built from one module, and stored in one folder.
type programSet struct {
	title  string // name of the programs, for people
	dir    string // folder of its module
	of     string // module whose version is that of the set
	prefix string // prefix of the folder's name
	binary string // built file; the programs are links to it, or the file itself
	names  []string
	time   string // rough duration of a build
	assets string // variable with a folder of the programs
}

// kubernetesPrograms returns the set of the programs of a control plane.
func kubernetesPrograms() *programSet {
	return &programSet{
		title: "kubernetes", dir: "module", of: "k8s.io/kubernetes", binary: "kubebed", names: ProgramNames(),
		time: "5 to 20 minutes on two cores", assets: AssetsVariable,
	}
}

// gardenerPrograms returns the set with the API server of Gardener.
func gardenerPrograms() *programSet {
	return &programSet{
		title: "gardener", dir: "garden", of: "github.com/gardener/gardener", prefix: "gardener-", binary: GardenerAPIServer,
		names: []string{GardenerAPIServer}, time: "2 to 8 minutes on two cores", assets: GardenAssetsVariable,
	}
}

// releaseVersion returns the release of the set, such as 1.37.1.
func (s *programSet) releaseVersion() string { return s.requiredVersion(s.of) }

// requiredVersion returns the version of a module that the set's module requires.
func (s *programSet) requiredVersion(name string) string {
	text, err := modules.ReadFile(s.dir + "/go.mod.txt")
	if err != nil {
		panic(err) // it is embedded
	}
	m := regexp.MustCompile(`(?m)^(?:require)?\s*` + regexp.QuoteMeta(name) + ` v(\S+)`).FindSubmatch(text)
	if m == nil {
		panic("module of the programs does not require " + name)
	}
	return string(m[1])
}

// cacheKey returns a key over everything that the programs are built from.
func (s *programSet) cacheKey() (string, error) {
	sum := sha256.New()
	err := s.forEachFile(func(name string, content []byte) error {
		_, err := fmt.Fprintf(sum, "%s %d\n%s", name, len(content), content)
		return err
	})
	if err != nil {
		return "", err
	}
	return s.prefix + strings.Join([]string{s.releaseVersion(), runtime.GOOS, runtime.GOARCH, hex.EncodeToString(sum.Sum(nil))[:12]}, "-"), nil
}

// forEachFile calls f with each file of the set's module, in order, with its name in the
// module.
func (s *programSet) forEachFile(f func(name string, content []byte) error) error {
	entries, err := fs.ReadDir(modules, s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		content, err := modules.ReadFile(s.dir + "/" + e.Name())
		if err != nil {
			return err
		}
		if err := f(strings.TrimSuffix(e.Name(), ".txt"), content); err != nil {
			return err
		}
	}
	return nil
}

// linkNames returns the programs that are links to the binary.
func (s *programSet) linkNames() []string {
	return slices.DeleteFunc(slices.Clone(s.names), func(name string) bool { return name == s.binary })
}
