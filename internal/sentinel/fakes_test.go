package sentinel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/processtest"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeAPI is a fleet API in memory that supports the ways of paging that the sentinel knows.
type fakeAPI struct {
	mu        sync.Mutex
	resources map[string]v1.Resource
	encoded   map[string][]byte // the resources as JSON, until they change
	sorted    []string          // the ids; nil after a deletion
	requests  []request

	// tokens says whether it knows limit and continue; most is the largest
	// page it gives.
	tokens bool
	most   int

	// ignoreLabels serves everything, whatever the selector.
	ignoreLabels bool

	// before is called for each request; its error is the answer.
	before func(ctx context.Context, q url.Values) error

	// body, if it is set, is the answer to every request.
	body func(q url.Values) string
}

type request struct {
	at    time.Time
	query string
}

func newAPI(resources ...v1.Resource) *fakeAPI {
	a := &fakeAPI{resources: map[string]v1.Resource{}, encoded: map[string][]byte{}, tokens: true, most: 500}
	for _, r := range resources {
		a.put(r)
	}
	return a
}

// put adds a resource, or replaces it.
func (a *fakeAPI) put(r v1.Resource) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resources[r.ID] = r
	delete(a.encoded, r.ID)
}

// encodeLocked returns a resource as JSON. To encode all of a large fleet for each request would be
// most of the work of a test.
func (a *fakeAPI) encodeLocked(id string) []byte {
	b, ok := a.encoded[id]
	if !ok {
		b = marshal(a.resources[id])
		a.encoded[id] = b
	}
	return b
}

// encodeList returns a list without items as JSON, with the items put into it.
func encodeList(list any, items [][]byte) []byte {
	const none = `"items":[]`
	before, after, ok := bytes.Cut(marshal(list), []byte(none))
	if !ok {
		panic("the list has items of its own")
	}
	return slices.Concat(before, []byte(`"items":[`), bytes.Join(items, []byte(",")), []byte("]"), after)
}

func (a *fakeAPI) ListPage(ctx context.Context, collection string, q url.Values, dst []byte) ([]byte, error) {
	if err := a.takeRequest(ctx, collection, q); err != nil {
		return nil, err
	}
	return append(dst[:0], a.page(q)...), nil
}

// takeRequest counts a request and returns the error that answers it, if any.
func (a *fakeAPI) takeRequest(ctx context.Context, collection string, q url.Values) error {
	a.mu.Lock()
	a.requests = append(a.requests, request{time.Now(), collection + "?" + q.Encode()})
	before := a.before
	a.mu.Unlock()
	if before != nil {
		if err := before(ctx, q); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// page returns the answer to a request for a page.
func (a *fakeAPI) page(q url.Values) []byte {
	a.mu.Lock()
	body := a.body
	a.mu.Unlock()
	if body != nil {
		return []byte(body(q))
	}
	return encodeList(a.list(q))
}

// ListPageIf supports no tags.
func (a *fakeAPI) ListPageIf(ctx context.Context, collection string, q url.Values, _ string, dst []byte) ([]byte, io.ReadCloser, string, error) {
	body, err := a.ListPage(ctx, collection, q, dst)
	return body, nil, "", err
}

// Watch is not supported.
func (a *fakeAPI) Watch(context.Context, string, url.Values, func(v1.WatchEvent) error) error {
	return errors.ErrUnsupported
}

// list returns a page without its items, and the items.
func (a *fakeAPI) list(q url.Values) (l v1.List, items [][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sel, err := selector.Parse(q.Get("labels"))
	if err != nil {
		panic(err)
	}
	if len(a.sorted) != len(a.resources) {
		a.sorted = slices.Sorted(maps.Keys(a.resources))
	}
	listed := func(id string) bool { return a.ignoreLabels || sel.Matches(selector.Map(a.resources[id].Labels)) }
	if limit, err := strconv.Atoi(q.Get("limit")); a.tokens && err == nil {
		limit = min(limit, a.most)
		from, _ := slices.BinarySearch(a.sorted, q.Get("continue")+"\x00")
		l.Items = []v1.Resource{}
		last := ""
		for _, id := range a.sorted[from:] {
			switch {
			case !listed(id):
			case l.Size == limit:
				l.Continue = last
				return l, items
			default:
				items = append(items, a.encodeLocked(id))
				last = id
				l.Size++
			}
		}
		return l, items
	}
	var all []string
	for _, id := range a.sorted {
		if listed(id) {
			all = append(all, id)
		}
	}
	page, size := 1, 20
	if n, err := strconv.Atoi(q.Get("page")); err == nil {
		page = n
	}
	if n, err := strconv.Atoi(q.Get("size")); err == nil {
		size = n
	}
	size = min(size, a.most)
	from := min((page-1)*size, len(all))
	total := int64(len(all))
	for _, id := range all[from:min(len(all), from+size)] {
		items = append(items, a.encodeLocked(id))
	}
	return v1.List{Items: []v1.Resource{}, Page: page, Size: len(items), Total: &total}, items
}

// change edits a resource.
func (a *fakeAPI) change(id string, edit func(*v1.Resource)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.resources[id]
	edit(&r)
	a.resources[id] = r
	delete(a.encoded, id)
}

// patch changes the spec, answer reports on it.
func (a *fakeAPI) patch(id string) {
	a.change(id, func(r *v1.Resource) { r.Generation++; r.UpdatedTime = time.Now() })
}

func (a *fakeAPI) answer(id string) {
	a.change(id, func(r *v1.Resource) {
		r.Status.ObservedGeneration, r.Status.LastUpdatedTime = r.Generation, time.Now()
	})
}

func (a *fakeAPI) calls() []request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

// A fakeBroker confirms all events, unless a test configures failures.
type fakeBroker struct {
	mu     sync.Mutex
	events []published

	// publish, if it is set, is called before an event is taken.
	publish func(ctx context.Context, e *cloudevent.Event) error
	ready   error
}

type published struct {
	at time.Time
	cloudevent.Event
}

func (b *fakeBroker) Publish(ctx context.Context, e *cloudevent.Event) error {
	if err := e.Validate(); err != nil {
		return err
	}
	if b.publish != nil {
		if err := b.publish(ctx, e); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, published{time.Now(), *e})
	return nil
}

func (b *fakeBroker) InFlight() int { return 0 }
func (b *fakeBroker) Ready() error  { return b.ready }

func (b *fakeBroker) got() []published {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

// of returns the events about one resource.
func (b *fakeBroker) of(id string) []published {
	return slices.DeleteFunc(b.got(), func(e published) bool { return e.Subject != id })
}

// cluster returns a resource with a current report.
func cluster(id, phase string, generation, observed int64) v1.Resource {
	now := time.Now()
	return v1.Resource{
		ID: id, Kind: "Cluster", Name: id, Generation: generation, Spec: json.RawMessage(`{}`),
		CreatedTime: now.Add(-time.Hour), UpdatedTime: now.Add(-time.Minute),
		Labels: map[string]string{"region": "us-east"},
		Status: v1.Status{Phase: v1.Phase(phase), ObservedGeneration: observed, LastUpdatedTime: now, LastTransitionTime: now.Add(-time.Hour)},
	}
}

// A fixture is a sentinel with all its dependencies.
type fixture struct {
	*sentinel.Sentinel
	api    *fakeAPI
	broker *fakeBroker
	reg    *prometheus.Registry
	log    *logBuffer
}

type logBuffer struct{ processtest.Buffer }

// lines returns the lines that contain a text.
func (l *logBuffer) lines(text string) []string {
	var found []string
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

func newFixture(t *testing.T, api *fakeAPI, change ...func(*sentinel.Config, *sentinel.Deps)) *fixture {
	t.Helper()
	b := &fixture{api: api, broker: &fakeBroker{}, reg: prometheus.NewRegistry(), log: &logBuffer{}}
	cfg := sentinel.Config{ResourceType: "clusters"}
	deps := sentinel.Deps{
		API: api, Publisher: b.broker, BrokerType: "nats", Registerer: b.reg,
		Log: slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&cfg, &deps)
	}
	s, err := sentinel.New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	b.Sentinel = s
	return b
}

// run starts the sentinel; it is stopped when the test ends, or by stop.
func (b *fixture) run(t *testing.T) (stop func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stop = sync.OnceValue(func() time.Duration {
		begin := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		return time.Since(begin)
	})
	t.Cleanup(func() { stop() })
	return stop
}

// metric returns the value of a series: of a counter or gauge, or the number of observations of a
// histogram. Labels are pairs of name and value.
func (b *fixture) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "hyperfleet_sentinel_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabels(m, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	t.Fatalf("no series %s %v", name, labels)
	return 0
}

func hasLabels(m *dto.Metric, want []string) bool {
	for i := 0; i < len(want); i += 2 {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == want[i] && l.GetValue() == want[i+1] }) {
			return false
		}
	}
	return true
}

func (b *fixture) wantMetric(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	if got := b.metric(t, name, labels...); got != want {
		t.Errorf("%s %v: got %v, want %v", name, labels, got, want)
	}
}

func wantCount[E any](t *testing.T, what string, got []E, want int) {
	t.Helper()
	if len(got) != want {
		t.Errorf("%s: got %d, want %d:\n%v", what, len(got), want, fmt.Sprint(got))
	}
}

var errDown = errors.New("it is down")

// A retryLaterError is an error with a time to wait.
type retryLaterError time.Duration

func (e retryLaterError) Error() string             { return "429 too many requests" }
func (e retryLaterError) RetryAfter() time.Duration { return time.Duration(e) }
