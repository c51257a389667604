package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	fleetclient "github.com/fleetloop/fleetloop/client"
)

const loadRows = 1_000_000

// bulkLoadBench measures a bulk load over HTTP. It compares the load with COPY of the same rows into
// the same table by its owner, including its indexes and its change log. COPY gets rows that are
// already checked, hashed and converted to columns; the load does all of that, and its client runs
// on the same machine.
func bulkLoadBench() bench {
	const name = "fleetapi.load_vs_copy"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		dir, remove, err := tempDir()
		if err != nil {
			return nil, err
		}
		defer remove()
		dump := filepath.Join(dir, "dump")
		loaded, err := measureLoadAndDump(ctx, filepath.Join(dir, "loaded"), dump, progress)
		if err != nil {
			return nil, err
		}
		copied, err := measureCopyFromDump(ctx, filepath.Join(dir, "copied"), dump)
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(progress, "%d clusters: %.1fs over HTTP, %.1fs by COPY\n", loadRows, loaded.Seconds(), copied.Seconds())
		return []line{{kind: "ratio", name: name, value: loaded.Seconds() / copied.Seconds(), op: "<=", want: 1.6}}, nil
	}}
}

// measureLoadAndDump loads a fleet into a database with the durability of production, and dumps it.
func measureLoadAndDump(ctx context.Context, dir, dumpFile string, progress io.Writer) (loadTook time.Duration, err error) {
	db, err := startMigratedDatabase(ctx, dir, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.stopServer()) }()
	client, stop, err := serveAPI(ctx, db.cfg)
	if err != nil {
		return 0, err
	}
	lines := newFleetLines(loadRows)
	told := lines.reportProgress(progress)
	begin := time.Now()
	loaded, err := client.Clusters().Load(ctx, lines, fleetclient.LoadOptions{})
	loadTook = time.Since(begin)
	told()
	if err = errors.Join(err, stop()); err != nil {
		return 0, err
	}
	if loaded.Created != loadRows {
		return 0, fmt.Errorf("%d clusters were created, want %d", loaded.Created, loadRows)
	}
	file, err := os.Create(dumpFile) //nolint:gosec // a file of our own
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	rows, err := exportClusters(ctx, db.server.DatabaseURL(), file)
	if err == nil && rows != loadRows {
		err = fmt.Errorf("%d clusters are there, want %d", rows, loadRows)
	}
	return loadTook, err
}

// measureCopyFromDump loads the same rows with COPY.
func measureCopyFromDump(ctx context.Context, dir, dumpFile string) (took time.Duration, err error) {
	db, err := startMigratedDatabase(ctx, dir, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.stopServer()) }()
	file, err := os.Open(dumpFile) //nolint:gosec // a file of our own
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	begin := time.Now()
	rows, err := importClusters(ctx, db.server.DatabaseURL(), bufio.NewReaderSize(file, 1<<20))
	if err == nil && rows != loadRows {
		err = fmt.Errorf("%d clusters were copied, want %d", rows, loadRows)
	}
	return time.Since(begin), err
}
