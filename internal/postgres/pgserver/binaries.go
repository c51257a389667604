package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// binaries are the programs of one installed PostgreSQL.
type binaries struct {
	dir     string
	version string // as printed by the program, "15.18"
	major   int
}

func (b binaries) postgresPath() string { return filepath.Join(b.dir, "postgres") }
func (b binaries) initdbPath() string   { return filepath.Join(b.dir, "initdb") }

const howToInstall = "install it (Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; macOS: brew install postgresql@17) or give the folder of its binaries"

// findOrDownloadBinaries finds a PostgreSQL for data of the given major version, or any supported one if
// major is 0.
func findOrDownloadBinaries(ctx context.Context, cfg Config, requiredMajor int, log *slog.Logger) (binaries, error) {
	if cfg.BinDir != "" {
		b, err := inspectBinaries(ctx, cfg.BinDir)
		if err != nil {
			return binaries{}, err
		}
		return pickSupportedBinaries([]binaries{b}, requiredMajor, cfg.Dir)
	}
	cache, err := resolveCacheDir(cfg.CacheDir)
	if err != nil {
		return binaries{}, err
	}
	found := listInstalledBinaries(ctx, downloadedBinDir(cache))
	if ctx.Err() != nil {
		return binaries{}, fmt.Errorf("find PostgreSQL: %w", context.Cause(ctx))
	}
	installed, err := pickSupportedBinaries(found, requiredMajor, cfg.Dir)
	downloadIsUseless := len(found) > 0 && requiredMajor != 0 // a download has one major version, too
	if err == nil || downloadIsUseless {
		return installed, err
	}
	fetched, err := downloadBinaries(ctx, cache, cfg.Repository, log)
	if err != nil {
		return binaries{}, newNoBinariesError(err)
	}
	b, err := inspectBinaries(ctx, fetched)
	if err != nil {
		return binaries{}, err
	}
	return pickSupportedBinaries([]binaries{b}, requiredMajor, cfg.Dir)
}

func newNoBinariesError(downloadErr error) error {
	return fmt.Errorf("PostgreSQL %d or newer is not installed and could not be downloaded (%w): %s", MinMajor, downloadErr, howToInstall)
}

// pickSupportedBinaries returns the first usable entry of the list.
func pickSupportedBinaries(candidates []binaries, requiredMajor int, dataDir string) (binaries, error) {
	var names []string
	for _, b := range candidates {
		if b.major >= MinMajor && (requiredMajor == 0 || b.major == requiredMajor) {
			return b, nil
		}
		names = append(names, fmt.Sprintf("%s in %q", b.version, b.dir))
	}
	if requiredMajor == 0 {
		return binaries{}, fmt.Errorf("PostgreSQL %d or newer is required, found %s: %s", MinMajor, strings.Join(names, ", "), howToInstall)
	}
	return binaries{}, fmt.Errorf(
		"the data in %q belongs to PostgreSQL %d, but PostgreSQL %s is installed: install PostgreSQL %d, or move the folder away to start with empty data",
		dataDir,
		requiredMajor,
		strings.Join(names, ", "),
		requiredMajor,
	)
}

// listInstalledBinaries returns the installations on the machine: the one in PATH first, then the others from
// the newest to the oldest, then those in the further folders.
func listInstalledBinaries(ctx context.Context, extraDirs ...string) []binaries {
	var inPath []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			path = resolved // the package's own folder, which also contains initdb
		}
		inPath = append(inPath, filepath.Dir(path))
	}
	var usual []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/usr/local/pgsql/bin",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
	} {
		dirs, _ := filepath.Glob(pattern) // its only error is a malformed pattern
		usual = append(usual, dirs...)
	}
	newestFirst := inspectAll(ctx, usual)
	slices.SortFunc(newestFirst, func(a, b binaries) int { return cmp.Compare(b.major, a.major) })
	return slices.Concat(inspectAll(ctx, inPath), newestFirst, inspectAll(ctx, extraDirs))
}

// inspectAll returns the binaries in those of the folders that have some.
func inspectAll(ctx context.Context, dirs []string) []binaries {
	var found []binaries
	for _, dir := range dirs {
		if b, err := inspectBinaries(ctx, dir); err == nil {
			found = append(found, b)
		}
	}
	return found
}

// inspectBinaries reads the version of the binaries in dir.
func inspectBinaries(ctx context.Context, dir string) (binaries, error) {
	b := binaries{dir: dir}
	if _, err := os.Stat(b.initdbPath()); err != nil {
		return b, fmt.Errorf("find the PostgreSQL binaries: %w", err)
	}
	out, err := exec.CommandContext(ctx, b.postgresPath(), "--version").Output() //nolint:gosec // a folder that we or the user named
	if err != nil {
		return b, fmt.Errorf("read the version of %q: %w", b.postgresPath(), err)
	}
	m := regexp.MustCompile(`PostgreSQL\) ((\d+)\S*)`).FindStringSubmatch(string(out))
	if m == nil {
		return b, fmt.Errorf("read the version of %q: unexpected output %q", b.postgresPath(), out)
	}
	b.version = m[1]
	b.major, err = strconv.Atoi(m[2])
	return b, err
}

func resolveCacheDir(configured string) (cacheDir string, err error) {
	if configured != "" {
		return filepath.Abs(configured)
	}
	if isRoot() {
		return "/var/cache/fleetloop", nil // the server's user cannot enter root's home
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", errors.Join(errors.New("find a folder for the PostgreSQL binaries"), err)
	}
	return filepath.Join(dir, "fleetloop"), nil
}
