package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
)

const (
	fanoutWatchers = 50
	fanoutChanges  = 20_000
	fanoutRounds   = 5
)

// fanoutBench measures how many changes per second reach every one of many watchers, compared with
// a single watcher.
func fanoutBench() bench {
	const name = "fleetapi.watch_fanout"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ratio, err := measureFanout(ctx, progress)
		return []line{{kind: "ratio", name: name, value: ratio, op: ">=", want: 0.7}}, err
	}}
}

func measureFanout(ctx context.Context, progress io.Writer) (ratio float64, err error) {
	dir, remove, err := tempDir()
	if err != nil {
		return 0, err
	}
	defer remove()
	db, err := startMigratedDatabase(ctx, dir, false)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.stopServer()) }()
	client, stop, err := serveAPI(ctx, db.cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	f := &fanout{client: client}
	var ratios []float64
	for round := range fanoutRounds + 1 {
		one, err := f.measureDeliveryToWatchers(ctx, 1)
		if err != nil {
			return 0, err
		}
		many, err := f.measureDeliveryToWatchers(ctx, fanoutWatchers)
		if err != nil {
			return 0, err
		}
		_, _ = fmt.Fprintf(progress, "%.0f changes a second to one watcher, %.0f to each of %d\n", one, many, fanoutWatchers)
		if round > 0 { // the first round warms caches and plans
			ratios = append(ratios, many/one)
		}
	}
	return computeMedian(ratios), nil
}

// A fanout makes changes for watchers.
type fanout struct {
	client *fleetclient.Client
	made   int
}

// measureDeliveryToWatchers loads clusters and returns the changes per second that reached every watcher.
func (f *fanout) measureDeliveryToWatchers(ctx context.Context, watchers int) (perSecond float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	ready, done := make(chan error, watchers), make(chan error, watchers)
	for range watchers {
		all.Go(func() { done <- f.runWatcherUntilAllArrived(ctx, ready) })
	}
	for range watchers {
		if err := <-ready; err != nil {
			return 0, err
		}
	}
	lines := newFleetLines(f.made + fanoutChanges)
	lines.next, f.made = f.made, f.made+fanoutChanges
	began := time.Now()
	if _, err := f.client.Clusters().Load(ctx, lines, fleetclient.LoadOptions{}); err != nil {
		return 0, err
	}
	for range watchers {
		if err := <-done; err != nil {
			return 0, err
		}
	}
	return fanoutChanges / time.Since(began).Seconds(), nil
}

// runWatcherUntilAllArrived watches until every change has arrived. It only scans the bytes to count the events:
// the cost of parsing belongs to clients, which would not share two cores with the server.
func (f *fanout) runWatcherUntilAllArrived(ctx context.Context, ready chan<- error) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.client.Endpoint()+"/"+v1.CollectionClusters+"?watch=true", http.NoBody)
	if err != nil {
		ready <- err
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		ready <- err
		return err
	}
	defer func() { _ = resp.Body.Close() }() // the response has ended
	if resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	ready <- err
	const mark = "\nevent: changed\n"
	body := bufio.NewReaderSize(resp.Body, 256<<10)
	for seen := 0; err == nil && seen < fanoutChanges; {
		if _, err = body.Peek(len(mark)); err != nil {
			break
		}
		chunk, _ := body.Peek(body.Buffered())
		seen += bytes.Count(chunk, []byte(mark))
		_, err = body.Discard(len(chunk) - len(mark) + 1) // the rest may be the start of a mark
	}
	return err
}
