package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
)

const (
	pageRows   = 1_000_000
	pageLimit  = 100
	pageRounds = 7
	pagesEach  = 200 // pages per round
)

// pageVsSQLBench measures a filtered page of a large collection over HTTP, compared with the bare
// statement.
func pageVsSQLBench() bench {
	const name = "fleetapi.page_vs_sql"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ratio, err := compareAPIWithBareSQL(ctx, progress)
		return []line{{kind: "ratio", name: name, value: ratio, op: "<=", want: 2.5}}, err
	}}
}

// compareAPIWithBareSQL fills a separate database and reads it in both ways.
func compareAPIWithBareSQL(ctx context.Context, progress io.Writer) (ratio float64, err error) {
	dir, remove, err := tempDir()
	if err != nil {
		return 0, err
	}
	defer remove()
	db, err := startMigratedDatabase(ctx, dir, false)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.stopServer() }()
	_, _ = fmt.Fprintf(progress, "loading %d rows\n", pageRows)
	fleet := databaseFleet{Rows: pageRows}
	if err := loadFleet(ctx, db.server.DatabaseURL(), fleet); err != nil {
		return 0, err
	}
	bare, err := openBareReader(ctx, db.server.DatabaseURL())
	if err != nil {
		return 0, err
	}
	defer func() { _ = bare.Close(ctx) }()
	client, stop, err := serveAPI(ctx, db.cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return comparePageTimes(ctx, client, bare, fleet.Label(0))
}

// comparePageTimes walks a shard's pages in both ways and returns the ratio of the 99th percentiles:
// the median of several rounds.
func comparePageTimes(ctx context.Context, client *fleetclient.Client, bare *bareReader, shard string) (ratio float64, err error) {
	var ratios []float64
	for round := range pageRounds + 1 {
		w := pageWalk{
			client: client, bare: bare, shard: shard,
			query: url.Values{"labels": {"shard=" + shard}, "limit": {strconv.Itoa(pageLimit)}},
		}
		for range pagesEach {
			if err := w.measureBothAndAdvance(ctx); err != nil {
				return 0, err
			}
		}
		if round > 0 { // the first round warms caches and plans
			ratios = append(ratios, computePercentile99(w.overHTTP)/computePercentile99(w.bareSQL))
		}
	}
	return computeMedian(ratios), nil
}

// A pageWalk reads the pages of a shard in order, each in both ways. It alternates the order of the
// bare statement and HTTP, because the second one finds the page in the cache.
type pageWalk struct {
	client *fleetclient.Client
	bare   *bareReader
	shard  string
	query  url.Values
	after  uuid.UUID
	body   []byte

	overHTTP, bareSQL []float64 // seconds
}

func (w *pageWalk) measureBothAndAdvance(ctx context.Context) error {
	ways := []func(context.Context) error{w.measureBareSQLPage, w.measureHTTPPage}
	if len(w.overHTTP)%2 == 1 {
		slices.Reverse(ways)
	}
	for _, read := range ways {
		if err := read(ctx); err != nil {
			return err
		}
	}
	return w.advanceToNextPage()
}

func (w *pageWalk) measureBareSQLPage(ctx context.Context) error {
	begin := time.Now()
	_, _, err := w.bare.ReadPage(ctx, w.shard, w.after, pageLimit)
	w.bareSQL = append(w.bareSQL, time.Since(begin).Seconds())
	return err
}

func (w *pageWalk) measureHTTPPage(ctx context.Context) (err error) {
	begin := time.Now()
	w.body, err = w.client.Raw().ListPage(ctx, v1.CollectionClusters, w.query, w.body)
	w.overHTTP = append(w.overHTTP, time.Since(begin).Seconds())
	return err
}

// advanceToNextPage advances to the next page.
func (w *pageWalk) advanceToNextPage() (err error) {
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

func computePercentile99(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)*99/100]
}
