package main

import (
	"context"
	"encoding/json"
	"errors"
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
	pageRounds = 7
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

// measurePages fills a database of its own and reads it both ways.
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
	bare, err := pgbench.Open(ctx, server.URL())
	if err != nil {
		return 0, err
	}
	defer func() { _ = bare.Close(ctx) }()
	client, stop, err := servePages(cfg, log) //nolint:contextcheck // the pool outlives the call
	if err != nil {
		return 0, err
	}
	defer stop()
	return comparePages(ctx, client, bare, fleet.Label(0))
}

// servePages serves the fleet API on a loopback port.
func servePages(cfg postgres.Config, log *slog.Logger) (client *fleetclient.Client, stop func(), err error) {
	pool, err := postgres.New(cfg, log)
	if err != nil {
		return nil, nil, err
	}
	var api fleetapi.Config
	_, loadErr := settings.Load(&api, settings.Source{})
	handler, newErr := fleetapi.New(api, fleetapi.Deps{Store: pgstore.New(pool), Log: log, Metrics: prometheus.NewRegistry(), ListenAddr: "127.0.0.1:0"})
	if err := errors.Join(loadErr, newErr); err != nil {
		pool.Close()
		return nil, nil, err
	}
	web := httptest.NewServer(handler.Handler())
	stop = func() {
		web.Close()
		pool.Close()
	}
	client, err = fleetclient.New(fleetclient.Config{Endpoint: web.URL}, fleetclient.Deps{Wrap: func(http.RoundTripper) http.RoundTripper { return web.Client().Transport }})
	return client, stop, err
}

// comparePages walks a shard's pages both ways and gives the ratio of the 99th
// percentiles: the median of some rounds.
func comparePages(ctx context.Context, client *fleetclient.Client, bare *pgbench.Reader, shard string) (float64, error) {
	var ratios []float64
	for round := range pageRounds + 1 {
		w := walk{
			client: client, bare: bare, shard: shard,
			query: url.Values{"labels": {"shard=" + shard}, "limit": {strconv.Itoa(pageLimit)}},
		}
		for range pagesEach {
			if err := w.step(ctx); err != nil {
				return 0, err
			}
		}
		if round > 0 { // the first warms caches and plans
			ratios = append(ratios, percentile99(w.overHTTP)/percentile99(w.bareSQL))
		}
	}
	return median(ratios), nil
}

// A walk reads the pages of a shard one after the other, each both ways: by
// turns first with the bare statement and first over HTTP, because the second
// finds the page in the cache.
type walk struct {
	client *fleetclient.Client
	bare   *pgbench.Reader
	shard  string
	query  url.Values
	after  uuid.UUID
	body   []byte

	overHTTP, bareSQL []float64 // seconds
}

func (w *walk) step(ctx context.Context) error {
	ways := []func(context.Context) error{w.bareStep, w.httpStep}
	if len(w.overHTTP)%2 == 1 {
		slices.Reverse(ways)
	}
	for _, read := range ways {
		if err := read(ctx); err != nil {
			return err
		}
	}
	return w.turn()
}

func (w *walk) bareStep(ctx context.Context) error {
	begin := time.Now()
	_, _, err := w.bare.Page(ctx, w.shard, w.after, pageLimit)
	w.bareSQL = append(w.bareSQL, time.Since(begin).Seconds())
	return err
}

func (w *walk) httpStep(ctx context.Context) (err error) {
	begin := time.Now()
	w.body, err = w.client.ListPage(ctx, v1.CollectionClusters, w.query, w.body)
	w.overHTTP = append(w.overHTTP, time.Since(begin).Seconds())
	return err
}

// turn goes on to the next page.
func (w *walk) turn() (err error) {
	var page v1.List
	if err := json.Unmarshal(w.body, &page); err != nil {
		return err
	}
	if len(page.Items) != pageLimit || page.Continue == "" {
		return fmt.Errorf("page has %d rows, continue %q; want %d and more to come", len(page.Items), page.Continue, pageLimit)
	}
	w.query.Set("continue", page.Continue)
	w.after, err = uuid.Parse(page.Items[pageLimit-1].ID)
	return err
}

func percentile99(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)*99/100]
}
