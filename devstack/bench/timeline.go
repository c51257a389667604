package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
)

const (
	// timelineEvents are sent in arrays, timelineSingles one per request.
	timelineEvents   = 100_000
	timelineArray    = 500
	timelineSenders  = 4
	timelineSingles  = 20_000
	timelineSenders1 = 64
)

// timelineBench measures how fast change events that arrive over HTTP are stored. It compares them
// with COPY of the same rows into the same tables by their owner, including their indexes and
// partitions. COPY gets rows. The ingest parses, validates, hashes and deduplicates the events, and
// its senders run on the same machine.
func timelineBench() bench {
	const name = "timeline.ingest_vs_copy"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		dir, remove, err := tempDir()
		if err != nil {
			return nil, err
		}
		defer remove()
		var keys, events bytes.Buffer
		arrays, singles, err := measureIngestAndExport(ctx, dir+"/told", &keys, &events)
		if err != nil {
			return nil, err
		}
		copied, err := measureTimelineCopy(ctx, dir+"/copied", &keys, &events)
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(progress, "change events a second: %.0f in arrays of %d, %.0f one a request from %d senders, %.0f by COPY\n",
			arrays, timelineArray, singles, timelineSenders1, copied)
		return []line{{kind: "ratio", name: name, value: arrays / copied, op: ">=", want: 0.15}}, nil
	}}
}

// measureIngestAndExport sends change events, and dumps those that were sent in arrays. It returns the
// stored events per second, in arrays and one by one.
func measureIngestAndExport(
	ctx context.Context,
	dir string,
	keys, events io.Writer,
) (arraysPerSecond, singlesPerSecond float64, err error) {
	db, err := startMigratedDatabase(ctx, dir, true)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.stopServer()) }()
	client, stop, err := serveAPI(ctx, db.cfg)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	url := strings.TrimSuffix(client.Endpoint(), v1.BasePath) + v1.ChangesPath + "/"

	bodies, err := newEventBodies(0, timelineEvents, timelineArray)
	if err != nil {
		return 0, 0, err
	}
	if arraysPerSecond, err = postAll(ctx, url, bodies, timelineSenders, timelineEvents); err != nil {
		return 0, 0, err
	}
	rows, err := exportChanges(ctx, db.server.DatabaseURL(), keys, events)
	if err == nil && rows != timelineEvents {
		err = fmt.Errorf("%d change events are there, want %d", rows, timelineEvents)
	}
	if err != nil {
		return 0, 0, err
	}
	if bodies, err = newEventBodies(timelineEvents, timelineSingles, 1); err != nil {
		return 0, 0, err
	}
	singlesPerSecond, err = postAll(ctx, url, bodies, timelineSenders1, timelineSingles)
	return arraysPerSecond, singlesPerSecond, err
}

// newEventBodies returns the bodies of requests for count change events of a fleet, starting with first.
func newEventBodies(first, count, perBody int) ([][]byte, error) {
	begin := time.Now().Add(-time.Hour)
	var bodies [][]byte
	for done := 0; done < count; done += perBody {
		list := make([]changeevent.Payload, perBody)
		for i := range list {
			number := first + done + i
			list[i] = changeevent.NewPayload(changeevent.ChangeEvent{
				Action: changeevent.ActionCordon, NodeName: fmt.Sprintf("gpu-node-%05d", number%20_000), Cluster: fmt.Sprintf("cluster-%04d", number%1000),
				CheckName: "GpuXidError", ErrorCode: "XID-79", Agent: "gpu-health-monitor", IsFatal: true, Message: "the GPU has fallen off the bus",
				Source: changeevent.SourceFaultQuarantine, Session: fmt.Sprintf("session-%d", number), Timestamp: begin.Add(time.Duration(number) * time.Millisecond),
			})
		}
		var content any = list
		if perBody == 1 {
			content = list[0]
		}
		body, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, body)
	}
	return bodies, nil
}

// postAll sends bodies with events and returns the stored events per second.
func postAll(ctx context.Context, urlPrefix string, bodies [][]byte, senders, events int) (eventsPerSecond float64, err error) {
	transport := &http.Transport{MaxIdleConnsPerHost: senders, MaxConnsPerHost: senders}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for s := range senders {
		g.Go(func() error {
			for i := s; i < len(bodies); i += senders {
				if err := postEvents(ctx, client, urlPrefix+"bench", bodies[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = g.Wait()
	return float64(events) / time.Since(begin).Seconds(), err
}

func postEvents(ctx context.Context, client *http.Client, url string, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("change events were answered with %d: %s", resp.StatusCode, answer)
	}
	return err
}

// measureTimelineCopy copies the same rows and returns the rows per second.
func measureTimelineCopy(ctx context.Context, dir string, keys, events io.Reader) (perSecond float64, err error) {
	db, err := startMigratedDatabase(ctx, dir, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.stopServer()) }()
	begin := time.Now()
	rows, err := importChanges(ctx, db.server.DatabaseURL(), keys, events)
	if err == nil && rows != timelineEvents {
		err = fmt.Errorf("%d change events were copied, want %d", rows, timelineEvents)
	}
	return timelineEvents / time.Since(begin).Seconds(), err
}
