package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// fetchVersion is what is fetched where nothing is installed.
const fetchVersion = embedded.V17

func fetchedDir(cache string) string {
	return filepath.Join(cache, "postgresql-"+string(fetchVersion), "bin")
}

// fetch downloads binaries into the cache and returns their folder.
//
// The library has no call for that alone: it downloads and unpacks on the way
// to a server of its own. So a throwaway one is started and stopped; as root
// its initdb refuses, by when the binaries are there.
func fetch(ctx context.Context, cache, repository string, log *slog.Logger) (string, error) {
	bin := fetchedDir(cache)
	log.InfoContext(ctx, "downloading postgres", "version", string(fetchVersion), "dir", filepath.Dir(bin))
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // programs that the server's user runs
		return "", err
	}
	scratch, err := os.MkdirTemp(cache, "fetch-")
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
		BinariesPath(filepath.Dir(bin)).
		RuntimePath(filepath.Join(scratch, "run")).
		DataPath(filepath.Join(scratch, "data")).
		Logger(io.Discard)
	if repository != "" {
		cfg = cfg.BinaryRepositoryURL(repository)
	}
	server := embedded.NewDatabase(cfg)

	// The library takes no context. When ours ends first, the download is left
	// to finish or fail by itself: it is a file in the cache, renamed when whole.
	done := make(chan error, 1)
	go func() {
		err := server.Start()
		if err == nil {
			err = server.Stop()
		}
		done <- errors.Join(err, os.RemoveAll(scratch))
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case err = <-done:
	}
	if _, missing := os.Stat(filepath.Join(bin, "initdb")); missing != nil {
		if err == nil {
			err = missing
		}
		return "", fmt.Errorf("fetch PostgreSQL %s: %w", fetchVersion, err)
	}
	return bin, nil
}
