package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/pgbench"
	"github.com/fleetloop/fleetloop/internal/fleetclient"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const (
	pageRows   = 1_000_000
	pageLimit  = 100
	pageRounds = 5
	pagesEach  = 200 // pages of one round
)

// pageBench measures a filtered page of a large collection over HTTP against
// the bare statement.
func pageBench() bench {
	const name = "fleetapi.page_vs_sql"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ratio, err := measurePages(ctx, progress)
		return []line{{kind: "ratio", name: name, value: ratio, op: "<=", want: 2.5}}, err
	}}
}

func measurePages(ctx context.Context, progress io.Writer) (ratio float64, err error) {
	dir, err := os.MkdirTemp("", "fleetloop-bench-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	log := slog.New(slog.DiscardHandler)
	server, err := pgserver.Start(ctx, pgserver.Config{Dir: dir, Throwaway: true, Settings: map[string]string{"shared_buffers": "512MB"}}, log)
	if err != nil {
		return 0, err
	}
	defer func() { _ = server.Close() }()
	cfg := postgres.Config{URL: settings.Secret(server.URL())}
	if _, err := settings.Load(&cfg, settings.Source{}); err != nil {
		return 0, err
	}
	if err := postgres.Migrate(ctx, cfg, log); err != nil {
		return 0, err
	}
	_, _ = fmt.Fprintf(progress, "loading %d rows\n", pageRows)
	fleet := pgbench.Fleet{Rows: pageRows}
	if err := pgbench.Load(ctx, server.URL(), fleet); err != nil {
		return 0, err
	}

	pool, err := postgres.New(cfg, log)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	var api fleetapi.Config
	if _, err := settings.Load(&api, settings.Source{}); err != nil {
		return 0, err
	}
	handler, err := fleetapi.New(api, fleetapi.Deps{Store: pgstore.New(pool), Log: log, Metrics: prometheus.NewRegistry(), ListenAddr: "127.0.0.1:0"})
	if err != nil {
		return 0, err
	}
	web := httptest.NewServer(handler.Handler())
	defer web.Close()
	client, err := fleetclient.New(fleetclient.Config{Endpoint: web.URL}, fleetclient.Deps{Wrap: func(http.RoundTripper) http.RoundTripper { return web.Client().Transport }})
	if err != nil {
		return 0, err
	}
	conn, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	return comparePages(ctx, client, conn, fleet.Label(0))
}

// comparePages walks a shard's pages both ways, in turns on the same page, and gives
// the ratio of the 99th percentiles: the median of some rounds.
func comparePages(ctx context.Context, client *fleetclient.Client, conn *pgx.Conn, shard string) (float64, error) {
	var ratios []float64
	for round := range pageRounds + 1 {
		var overHTTP, bare []float64
		query := url.Values{"labels": {"shard=" + shard}, "limit": {strconv.Itoa(pageLimit)}}
		after := uuid.Nil
		var body []byte
		for range pagesEach {
			begin := time.Now()
			if _, _, err := pgbench.Page(ctx, conn, shard, after, pageLimit); err != nil {
				return 0, err
			}
			bare = append(bare, time.Since(begin).Seconds())

			begin = time.Now()
			var err error
			if body, err = client.ListPage(ctx, v1.CollectionClusters, query, body); err != nil {
				return 0, err
			}
			overHTTP = append(overHTTP, time.Since(begin).Seconds())

			var page v1.List
			if err := json.Unmarshal(body, &page); err != nil {
				return 0, err
			}
			if len(page.Items) != pageLimit || page.Continue == "" {
				return 0, fmt.Errorf("page has %d rows, continue %q; want %d and more to come", len(page.Items), page.Continue, pageLimit)
			}
			query.Set("continue", page.Continue)
			if after, err = uuid.Parse(page.Items[pageLimit-1].ID); err != nil {
				return 0, err
			}
		}
		if round > 0 { // the first warms caches and plans
			ratios = append(ratios, percentile99(overHTTP)/percentile99(bare))
		}
	}
	return median(ratios), nil
}

func percentile99(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)*99/100]
}
