package programs

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

// The modules that the programs are built from. Their files end in .txt so
// that Go does not take them for a part, or a neighbour, of this module.
//
//go:embed module garden
var modules embed.FS

// A set is programs that are built from one module, and kept in one folder.
type set struct {
	title  string // whose programs they are, for people
	dir    string // of its module
	of     string // the module whose version is that of the set
	prefix string // of the folder's name
	binary string // what is built; the programs are links to it, or are it
	names  []string
	time   string // that a build takes, roughly
	assets string // the variable that names a folder with the programs
}

// kubernetes are the programs of a control plane.
func kubernetes() *set {
	return &set{
		title: "kubernetes", dir: "module", of: "k8s.io/kubernetes", binary: "kubebed", names: Names(),
		time: "5 to 20 minutes on two cores", assets: AssetsVariable,
	}
}

// gardenerSet is the API server of Gardener.
func gardenerSet() *set {
	return &set{
		title: "gardener", dir: "garden", of: "github.com/gardener/gardener", prefix: "gardener-", binary: GardenerAPIServer,
		names: []string{GardenerAPIServer}, time: "2 to 8 minutes on two cores", assets: GardenAssetsVariable,
	}
}

// releaseVersion is the release of what the set is of, such as 1.37.1.
func (s *set) releaseVersion() string { return s.requiredVersion(s.of) }

// requiredVersion is the version of a module that the set's module requires.
func (s *set) requiredVersion(name string) string {
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

// cacheKey names everything that the programs are made of.
func (s *set) cacheKey() (string, error) {
	sum := sha256.New()
	err := s.eachFile(func(name string, content []byte) error {
		_, err := fmt.Fprintf(sum, "%s %d\n%s", name, len(content), content)
		return err
	})
	if err != nil {
		return "", err
	}
	return s.prefix + strings.Join([]string{s.releaseVersion(), runtime.GOOS, runtime.GOARCH, hex.EncodeToString(sum.Sum(nil))[:12]}, "-"), nil
}

// eachFile calls f with each file of the set's module, in order, under the
// name that it has there.
func (s *set) eachFile(f func(name string, content []byte) error) error {
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

// linkNames are the programs that are links to the binary.
func (s *set) linkNames() []string {
	return slices.DeleteFunc(slices.Clone(s.names), func(name string) bool { return name == s.binary })
}
