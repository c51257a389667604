package kubebed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/internal/settings"
)

// Environment variables for the source of the programs.
const (
	// AssetsVariable is an existing folder with the programs. It takes precedence.
	AssetsVariable = "KUBEBUILDER_ASSETS"
	// GardenAssetsVariable is an existing folder with gardener-apiserver.
	GardenAssetsVariable = "FLEETLOOP_GARDENBED_ASSETS"
	// CacheVariable is the cache folder; the default is fleetloop/kubebed in the user's
	// cache folder.
	CacheVariable = "FLEETLOOP_KUBEBED_DIR"
	// SourceVariable is auto (the default), download or build. Gardener is always
	// built.
	SourceVariable = "FLEETLOOP_KUBEBED_SOURCE"
	// KeepVariable, if set, keeps the Go build cache of a build, 3.4 GB.
	KeepVariable = "FLEETLOOP_KUBEBED_KEEP_BUILD_CACHE"
)

// GardenerAPIServer is the name of the program in the folder of Gardener.
const GardenerAPIServer = "gardener-apiserver"

// complete is the marker file in a folder with all programs.
const complete = ".complete"

// ProgramNames returns the programs in a folder on this platform.
func ProgramNames() []string {
	names := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}
	if runtime.GOOS == "linux" {
		names = append(names, "kubelet")
	}
	return names
}

// EnsureProgramFolder returns the folder with the programs. It first fills an empty folder, which
// may take minutes: log receives the progress.
func EnsureProgramFolder(ctx context.Context, log *slog.Logger) (string, error) {
	dir, _ := settings.OSEnv(AssetsVariable)
	if dir != "" {
		return resolveAndCheckFolder(AssetsVariable, dir, "kube-apiserver", "etcd")
	}
	source, _ := settings.OSEnv(SourceVariable)
	dir, err := ensureCachedFolder(ctx, log, kubernetesPrograms(), source)
	if err != nil {
		return "", fmt.Errorf("find Kubernetes programs: %w", err)
	}
	return dir, nil
}

// EnsureGardenProgramFolder is like EnsureProgramFolder for gardener-apiserver.
func EnsureGardenProgramFolder(ctx context.Context, log *slog.Logger) (string, error) {
	dir, _ := settings.OSEnv(GardenAssetsVariable)
	if dir != "" {
		return resolveAndCheckFolder(GardenAssetsVariable, dir, GardenerAPIServer)
	}
	dir, err := ensureCachedFolder(ctx, log, gardenerPrograms(), "build")
	if err != nil {
		return "", fmt.Errorf("find Gardener programs: %w", err)
	}
	return dir, nil
}

// resolveAndCheckFolder returns the folder in an environment variable.
func resolveAndCheckFolder(variable, dir string, wanted ...string) (string, error) {
	dir, err := filepath.Abs(dir) // programs are started in other folders
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, wanted[0])); err != nil {
		return "", fmt.Errorf("%s: %w; set it to a directory with %s, or unset it", variable, err, strings.Join(wanted, " and "))
	}
	return dir, nil
}

// ensureCachedFolder returns the folder of a set in the cache.
func ensureCachedFolder(ctx context.Context, log *slog.Logger, s *programSet, sourceName string) (string, error) {
	base, err := cacheFolder()
	if err != nil {
		return "", err
	}
	c := cache{set: s, base: base, log: log, sources: allSources()}
	if c.order, err = sourceOrder(sourceName); err != nil {
		return "", err
	}
	dir, err := c.ensureFilledFolder(ctx)
	if err != nil {
		return "", fmt.Errorf("%w; set %s to a directory with these programs", err, s.assets)
	}
	return dir, nil
}

func cacheFolder() (string, error) {
	dir, _ := settings.OSEnv(CacheVariable)
	if dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w; set %s to a cache directory", err, CacheVariable)
	}
	return filepath.Join(dir, "fleetloop", "kubebed"), nil
}

// KubernetesVersion returns the release of Kubernetes, such as 1.37.1.
func KubernetesVersion() string { return kubernetesPrograms().releaseVersion() }

// GardenVersion returns the release of Gardener, such as 1.138.0.
func GardenVersion() string { return gardenerPrograms().releaseVersion() }

// A source fills an empty folder with the programs.
type source struct {
	name string
	fill func(ctx context.Context, c *cache, dir string) error
}

func allSources() []source {
	return []source{
		{"download", func(ctx context.Context, c *cache, dir string) error {
			return downloadPrograms(ctx, c, newReleaseDownloader(), dir)
		}},
		{"build", buildPrograms},
	}
}

// sourceOrder returns the names of the sources to try.
func sourceOrder(setting string) ([]string, error) {
	switch setting {
	case "", "auto":
		return []string{"download", "build"}, nil
	case "download", "build":
		return []string{setting}, nil
	}
	return nil, fmt.Errorf("%s is %q: use auto, download or build", SourceVariable, setting)
}

// A cache has a folder with the programs of a set for each of their versions. The sets
// share the lock: two concurrent builds are no faster than two in sequence.
type cache struct {
	set     *programSet
	base    string
	sources []source
	order   []string
	log     *slog.Logger
}

func (c *cache) ensureFilledFolder(ctx context.Context) (string, error) {
	k, err := c.set.cacheKey()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(c.base, k)
	if isComplete(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(c.base, 0o755); err != nil { //nolint:gosec // programs, which a server's user may run
		return "", err
	}
	unlock, err := c.lockCache(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if isComplete(dir) { // another process has filled it meanwhile
		return dir, nil
	}
	return dir, c.fillFolderLocked(ctx, dir)
}

func isComplete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, complete))
	return err == nil
}

// unfinished is the name prefix of folders that are being filled.
const unfinished = "new-"

// fillFolderLocked fills the folder from the first source that provides all programs.
func (c *cache) fillFolderLocked(ctx context.Context, dir string) error {
	left, _ := filepath.Glob(filepath.Join(c.base, unfinished+"*")) // its only error is a bad pattern
	for _, l := range left {                                        // under the lock, these are leftovers of killed processes
		if err := os.RemoveAll(l); err != nil {
			return err
		}
	}
	var errs []error
	for _, s := range c.sources {
		if !slices.Contains(c.order, s.name) {
			continue
		}
		err := c.fillFolderFrom(ctx, s, dir)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.log.InfoContext(ctx, "get programs failed", "of", c.set.title, "from", s.name, "err", err)
		errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
	}
	return errors.Join(errs...)
}

func (c *cache) fillFolderFrom(ctx context.Context, s source, dir string) (err error) {
	tmp, err := os.MkdirTemp(c.base, unfinished)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	if err := s.fill(ctx, c, tmp); err != nil {
		return err
	}
	for _, name := range c.set.names {
		if _, err := os.Stat(filepath.Join(tmp, name)); err != nil {
			return fmt.Errorf("program missing: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(tmp, complete), nil, 0o600); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return c.removeBuildCache()
}
