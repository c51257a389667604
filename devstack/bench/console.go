package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strconv"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

const (
	consoleRows     = 1_000_000
	summaryRequests = 500
	filterRequests  = 20 // of each filter and order
)

// consoleBench measures the requests of the console while it counts a large fleet. These are the
// summary, and the first page of a list with a filter and an order.
func consoleBench() bench {
	const summary, filter = "console.summary_1m_ms", "console.filter_1m_ms"
	return bench{names: []string{summary, filter}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		summaryMS, filterMS, err := measureConsole(ctx, progress)
		return []line{
			{kind: "value", name: summary, value: summaryMS, unit: "ms", op: "<=", want: 50},
			{kind: "value", name: filter, value: filterMS, unit: "ms", op: "<=", want: 500},
		}, err
	}}
}

func measureConsole(ctx context.Context, progress io.Writer) (summaryMS, filterMS float64, err error) {
	dir, remove, err := tempDir()
	if err != nil {
		return 0, 0, err
	}
	defer remove()
	db, err := startMigratedDatabase(ctx, dir, false)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.stopServer()) }()
	_, _ = fmt.Fprintf(progress, "loading %d rows\n", consoleRows)
	if err := loadFleet(ctx, db.server.DatabaseURL(), databaseFleet{Rows: consoleRows}); err != nil {
		return 0, 0, err
	}
	if err := simulateFleetFailures(ctx, db.server.DatabaseURL()); err != nil {
		return 0, 0, err
	}
	client, stop, err := serveAPI(ctx, db.cfg)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	end, err := startRollupCounter(ctx, db.cfg)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := awaitAllClustersCounted(ctx, client, progress); err != nil {
		return 0, 0, err
	}
	if summaryMS, err = measureSummary(ctx, client, progress); err != nil {
		return 0, 0, err
	}
	filterMS, err = measureFilters(ctx, client, progress)
	return summaryMS, filterMS, err
}

// startRollupCounter runs the roller of a fleet-api process.
func startRollupCounter(ctx context.Context, cfg postgres.Config) (end func() error, err error) {
	log := slog.New(slog.DiscardHandler)
	pool, err := postgres.New(cfg, log) //nolint:contextcheck // the pool outlives the call
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- pgstore.NewRollupCounter(pool, []string{"region", "shard"}, log).Run(ctx) }()
	return func() error {
		cancel()
		err := <-done
		pool.Close()
		return err
	}, nil
}

// awaitAllClustersCounted waits until all clusters are counted.
func awaitAllClustersCounted(ctx context.Context, client *fleetclient.Client, progress io.Writer) error {
	began := time.Now()
	for {
		summary, err := client.Summary(ctx)
		switch {
		case err == nil && summary.Kinds[v1.CollectionClusters].Total == consoleRows && len(summary.TopReasons) > 0:
			_, _ = fmt.Fprintf(progress, "%d clusters were counted in %.0fs\n", consoleRows, time.Since(began).Seconds())
			return nil
		case time.Since(began) > 10*time.Minute:
			return fmt.Errorf("the clusters are not counted after %s: %w", time.Since(began).Round(time.Second), err)
		}
		if err := backoff.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// measureSummary returns the 99th percentile of a summary, and prints the greatest age.
func measureSummary(ctx context.Context, client *fleetclient.Client, progress io.Writer) (p99MS float64, err error) {
	var took []float64
	var oldest time.Duration
	for range summaryRequests {
		begin := time.Now()
		summary, err := client.Summary(ctx)
		if err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(begin).Microseconds())/1000)
		oldest = max(oldest, time.Since(summary.AsOf))
		if err := backoff.Sleep(ctx, 5*time.Millisecond); err != nil { // over several rounds of the roller
			return 0, err
		}
	}
	_, _ = fmt.Fprintf(progress, "the counts were at most %.1fs old\n", oldest.Seconds())
	return computePercentile99(took), nil
}

// consoleFilters are selectors of one row in three, in five, in a hundred, in five hundred, of all
// rows but few, and of none.
func consoleFilters() []string {
	return []string{"region in (eu-1,eu-2),shard!=s0", "region=eu-3", "team=team-7", "team=team-7,region=eu-2", "team!=team-7", "team=none"}
}

func consoleOrders() []string {
	return []string{
		"", "name", "name desc", "created_time desc", "updated_time desc",
		"status.phase", "status.phase desc", "status.last_transition_time", "status.last_transition_time desc",
	}
}

// measureFilters returns the 99th percentile of the first page over all filters and orders, and
// prints that of each that is slow.
func measureFilters(ctx context.Context, client *fleetclient.Client, progress io.Writer) (p99MS float64, err error) {
	var all []float64
	var body []byte
	for _, labels := range consoleFilters() {
		for _, order := range consoleOrders() {
			query := url.Values{"labels": {labels}, "limit": {strconv.Itoa(pageLimit)}}
			if order != "" {
				query.Set("order", order)
			}
			var took []float64
			for range filterRequests {
				begin := time.Now()
				if body, err = client.Raw().ListPage(ctx, v1.CollectionClusters, query, body); err != nil {
					return 0, err
				}
				took = append(took, float64(time.Since(begin).Microseconds())/1000)
			}
			var page v1.List
			if err := json.Unmarshal(body, &page); err != nil {
				return 0, err
			}
			all = append(all, took...)
			const slow = 100
			if p := computePercentile99(took); p > slow {
				_, _ = fmt.Fprintf(progress, "labels %q, order %q: %d rows in %.0f ms\n", labels, order, len(page.Items), p)
			}
		}
	}
	return computePercentile99(all), nil
}
