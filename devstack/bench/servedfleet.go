package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A servedFleet serves a collection of resources as the fleet API does: pages by keyset, changes (always
// none), and resources by id. The resources are those of newCollectionPage. They are generated on demand and not
// stored, so that a million costs no more than one.
//
// It counts the requests, which show the benchmarks the progress of a sentinel.
type servedFleet struct {
	n        int
	template []byte
	ids      []int // positions of the resource number in the template: in its ids,
	names    []int // in its names,
	reports  []int // and position of the time of its report

	reported [spread]string // by number, modulo spread

	mu     sync.Mutex
	counts fleetCounts
	moved  chan struct{} // closed and replaced when the counts change
}

// fleetCounts holds the number of requests to a fleet so far.
type fleetCounts struct {
	Sweeps int // requests for first pages
	Swept  int // requests for last pages
	Polls  int // requests for changes
	IDs    int // resources requested by id
}

// spread is the number of seconds over which the last reports are spread. No report is so old that
// the resource would be due.
const spread = 1500

// newServedFleet returns a fleet of n resources, none of which is due within five minutes of now.
func newServedFleet(n int, now time.Time) *servedFleet {
	now = now.UTC().Truncate(time.Second).Add(123456 * time.Microsecond) // so that all times have the same length
	template, err := json.Marshal(newFleetResource(0, now))
	if err != nil {
		panic(err) // every value here can be marshalled
	}
	f := &servedFleet{n: n, template: append(template, ','), moved: make(chan struct{})}
	for i := range f.reported {
		f.reported[i] = now.Add(-time.Duration(i) * time.Second).Format(time.RFC3339Nano)
	}
	f.ids = findAllOffsets(template, "-000000000000", 1)
	f.names = findAllOffsets(template, "cluster-000000", len("cluster-"))
	f.reports = findAllOffsets(template, f.reported[0], 0)
	return f
}

// findAllOffsets returns the positions of a text, plus offset bytes.
func findAllOffsets(data []byte, text string, shift int) (at []int) {
	for from := 0; ; {
		i := bytes.Index(data[from:], []byte(text))
		if i < 0 {
			return at
		}
		at = append(at, from+i+shift)
		from += i + len(text)
	}
}

// Await waits until the request counts satisfy done.
func (f *servedFleet) Await(ctx context.Context, done func(fleetCounts) bool) error {
	for {
		f.mu.Lock()
		counts, moved := f.counts, f.moved
		f.mu.Unlock()
		if done(counts) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("wait for a sentinel that has asked for %+v: %w", counts, context.Cause(ctx))
		}
	}
}

// Counts returns the request counts so far.
func (f *servedFleet) Counts() fleetCounts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

func (f *servedFleet) updateCounts(change func(*fleetCounts)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.counts)
	close(f.moved)
	f.moved = make(chan struct{})
}

// ServeHTTP serves the collection of clusters.
func (f *servedFleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != v1.BasePath+"/"+v1.CollectionClusters {
		http.NotFound(w, r)
		return
	}
	q := r.URL.Query()
	var body []byte
	switch {
	case q.Has("changed_since"):
		body = []byte(`{"items":[],"removed":[],"size":0,"cursor":"Y3Vyc29y","more":false}`)
		f.updateCounts(func(c *fleetCounts) { c.Polls++ })
	case q.Has("ids"):
		body = f.buildPageOfIDs(strings.Split(q.Get("ids"), ","))
	default:
		from, _ := strconv.Atoi(q.Get("continue"))
		limit, err := strconv.Atoi(q.Get("limit"))
		if err != nil {
			http.Error(w, "want a limit", http.StatusBadRequest)
			return
		}
		body = f.buildPageAndCountSweeps(from, limit)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) //nolint:gosec // JSON; whoever has gone asks again
}

func (f *servedFleet) buildPageAndCountSweeps(from, limit int) []byte {
	to := min(from+limit, f.n)
	body := make([]byte, 0, (to-from)*len(f.template)+100)
	body = append(body, `{"items":[`...)
	for i := from; i < to; i++ {
		body = f.appendResource(body, i)
	}
	body = fmt.Appendf(bytes.TrimSuffix(body, []byte(",")), `],"size":%d,"cursor":"Y3Vyc29y"`, to-from)
	if to < f.n {
		body = fmt.Appendf(body, `,"continue":"%d"`, to)
	}
	f.updateCounts(func(c *fleetCounts) {
		if from == 0 {
			c.Sweeps++
		}
		if to == f.n {
			c.Swept++
		}
	})
	return append(body, '}')
}

func (f *servedFleet) buildPageOfIDs(ids []string) []byte {
	body := []byte(`{"items":[`)
	n := 0
	for _, id := range ids {
		number, err := strconv.ParseUint(id[max(0, len(id)-12):], 16, 48)
		if err == nil && int(number) < f.n {
			body = f.appendResource(body, int(number))
			n++
		}
	}
	f.updateCounts(func(c *fleetCounts) { c.IDs += n })
	return fmt.Appendf(bytes.TrimSuffix(body, []byte(",")), `],"size":%d}`, n)
}

// appendResource appends resource i and a comma.
func (f *servedFleet) appendResource(body []byte, i int) []byte {
	start := len(body)
	body = append(slices.Grow(body, len(f.template)), f.template...)
	item := body[start:]
	var digits [12]byte
	hex.Encode(digits[:], []byte{byte(i >> 40), byte(i >> 32), byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}) //nolint:gosec // byte by byte
	for _, at := range f.ids {
		copy(item[at:], digits[:])
	}
	for _, at := range f.names {
		for digit, rest := at+5, i; digit >= at; digit, rest = digit-1, rest/10 {
			item[digit] = '0' + byte(rest%10) //nolint:gosec // a digit
		}
	}
	for _, at := range f.reports {
		copy(item[at:], f.reported[i%spread])
	}
	return body
}
