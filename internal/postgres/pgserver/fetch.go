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

// fetchVersion is the version that is downloaded if no PostgreSQL is installed.
const fetchVersion = embedded.V17

func downloadedBinDir(cacheDir string) string {
	return filepath.Join(cacheDir, "postgresql-"+string(fetchVersion), "bin")
}

// downloadBinaries downloads binaries into the cache and returns their folder.
//
// The library has no separate call for that: it downloads and unpacks when it starts a server. So
// this function starts a server whose initdb fails, at which point the binaries are unpacked. The
// library unpacks file by file, so the binaries are moved into place when all are there: half a
// PostgreSQL would be taken for a complete one the next time.
func downloadBinaries(ctx context.Context, cacheRoot, repositoryURL string, log *slog.Logger) (binDir string, err error) {
	bin := downloadedBinDir(cacheRoot)
	log.InfoContext(ctx, "downloading postgres", "version", string(fetchVersion), "dir", filepath.Dir(bin))
	if err := os.MkdirAll(cacheRoot, 0o755); err != nil { //nolint:gosec // programs that the server's user runs
		return "", err
	}
	removeAbandonedDownloads(cacheRoot)
	scratch, err := os.MkdirTemp(cacheRoot, fetchPrefix)
	if err != nil {
		return "", err
	}
	port, err := findFreePort(ctx)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(scratch))
	}
	cfg := embedded.DefaultConfig().
		Version(fetchVersion).
		Port(uint32(port)). //nolint:gosec // a port
		CachePath(cacheRoot).
		BinariesPath(filepath.Join(scratch, "binaries")).
		RuntimePath(filepath.Join(scratch, "run")).
		DataPath(filepath.Join(scratch, "data")).
		Locale("none: this server is not to be").
		Logger(io.Discard)
	if repositoryURL != "" {
		cfg = cfg.BinaryRepositoryURL(repositoryURL)
	}
	server := embedded.NewDatabase(cfg)

	// The library takes no context. If ctx ends first, the download continues in the background: it
	// is a file in the cache, renamed when complete.
	done := make(chan error, 1)
	go func() {
		started := server.Start()
		if started == nil { // only if initdb accepted the invalid locale
			started = server.Stop()
		}
		err := moveUnpackedFiles(filepath.Join(scratch, "binaries"), filepath.Dir(bin), started)
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

// moveUnpackedFiles moves the unpacked files to their final folder. startErr is the result of the server's
// start, and explains missing files.
func moveUnpackedFiles(fromDir, toDir string, startErr error) error {
	if _, err := os.Stat(filepath.Join(fromDir, "bin", "initdb")); err != nil {
		return cmp.Or(startErr, err)
	}
	return errors.Join(os.RemoveAll(toDir), os.Rename(fromDir, toDir))
}

const (
	fetchPrefix = "fetch-"
	// No download takes this long; a folder this old is abandoned.
	fetchAbandoned = time.Hour
)

func removeAbandonedDownloads(cacheDir string) {
	dirs, _ := filepath.Glob(filepath.Join(cacheDir, fetchPrefix+"*")) // its only error is a malformed pattern
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > fetchAbandoned {
			_ = os.RemoveAll(dir) // the next sweep retries
		}
	}
}
