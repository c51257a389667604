package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// fetchVersion is what is fetched where nothing is installed.
const fetchVersion = embedded.V17

func fetchedDir(cache string) string {
	return filepath.Join(cache, "postgresql-"+string(fetchVersion), "bin")
}

// fetchBinaries downloads binaries into the cache and returns their folder.
//
// The library has no call for that alone: it downloads and unpacks on the way
// to a server of its own. So it is asked for one that no initdb makes, by when the
// binaries are there. It unpacks file by file, so they are put in their place
// when all are there: half a PostgreSQL would be taken for one the next time.
func fetchBinaries(ctx context.Context, cache, repository string, log *slog.Logger) (string, error) {
	bin := fetchedDir(cache)
	log.InfoContext(ctx, "downloading postgres", "version", string(fetchVersion), "dir", filepath.Dir(bin))
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // programs that the server's user runs
		return "", err
	}
	sweepFetches(cache)
	scratch, err := os.MkdirTemp(cache, fetchPrefix)
	if err != nil {
		return "", err
	}
	port, err := freePort(ctx)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(scratch))
	}
	cfg := embedded.DefaultConfig().
		Version(fetchVersion).
		Port(uint32(port)). //nolint:gosec // a port
		CachePath(cache).
		BinariesPath(filepath.Join(scratch, "binaries")).
		RuntimePath(filepath.Join(scratch, "run")).
		DataPath(filepath.Join(scratch, "data")).
		Locale("none: this server is not to be").
		Logger(io.Discard)
	if repository != "" {
		cfg = cfg.BinaryRepositoryURL(repository)
	}
	server := embedded.NewDatabase(cfg)

	// The library takes no context. When ours ends first, the download is left
	// to finish or fail by itself: it is a file in the cache, renamed when whole.
	done := make(chan error, 1)
	go func() {
		started := server.Start()
		if started == nil { // an initdb that takes any locale
			started = server.Stop()
		}
		err := putInPlace(filepath.Join(scratch, "binaries"), filepath.Dir(bin), started)
		done <- errors.Join(err, os.RemoveAll(scratch))
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case err = <-done:
	}
	if err != nil {
		return "", fmt.Errorf("download PostgreSQL %s: %w", fetchVersion, err)
	}
	return bin, nil
}

// putInPlace moves what was unpacked to where it is used. Started is how the
// server took it, and says why there is nothing.
func putInPlace(unpacked, dir string, started error) error {
	if _, err := os.Stat(filepath.Join(unpacked, "bin", "initdb")); err != nil {
		return cmp.Or(started, err)
	}
	return errors.Join(os.RemoveAll(dir), os.Rename(unpacked, dir))
}

const (
	fetchPrefix = "fetch-"
	// No download takes this long; a folder this old was left behind.
	fetchAbandoned = time.Hour
)

// sweepFetches removes what interrupted fetches left in the cache.
func sweepFetches(cache string) {
	dirs, _ := filepath.Glob(filepath.Join(cache, fetchPrefix+"*")) // its only error is a bad pattern
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > fetchAbandoned {
			_ = os.RemoveAll(dir) // what stays is tried again the next time
		}
	}
}
