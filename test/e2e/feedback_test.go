package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/broker/amqp"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sampleadapter"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// A recorder takes down the reports that go through it, as they are sent.
type recorder struct {
	next http.RoundTripper

	mu      sync.Mutex
	reports []map[string]any
}

// RoundTrip passes a request on.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPut && strings.HasSuffix(req.URL.Path, "/statuses") {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		var report map[string]any
		if err := json.Unmarshal(body, &report); err != nil {
			return nil, err
		}
		r.mu.Lock()
		r.reports = append(r.reports, report)
		r.mu.Unlock()
	}
	return r.next.RoundTrip(req)
}

// of gives the reports of one adapter.
func (r *recorder) of(adapter string) []map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.reports), func(report map[string]any) bool { return report["adapter"] != adapter })
}

// adapters runs sample adapters that consume from an exchange until the test
// ends. Only events that pass the filter reach them.
func adapters(t *testing.T, apiURL, exchange string, filter func(cloudevent.Event) bool, configs ...sampleadapter.Config) *recorder {
	t.Helper()
	rec := &recorder{}
	api, err := fleetclient.New(fleetclient.Config{
		Endpoint:      apiURL,
		WrapTransport: func(next http.RoundTripper) http.RoundTripper { rec.next = next; return rec },
	})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	broker, err := amqp.New(amqp.Config{URL: settings.Secret(rabbit(t).URL()), Exchange: exchange, RedeliveryDelay: 100 * time.Millisecond}, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var work sync.WaitGroup
	run := func(what func(context.Context) error) {
		work.Go(func() {
			if err := what(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	run(broker.Run)
	for _, cfg := range configs {
		// The queue first: what is published before the adapter has come up
		// waits in it.
		declareQueue(t, binding{url: rabbit(t).URL(), exchange: exchange, queue: exchange + "-" + sampleadapter.DefaultSubscriptionPrefix + cfg.Name})
		a, err := sampleadapter.New(cfg, sampleadapter.Deps{Consumer: filtered{broker, filter}, Fleet: api.Reporter(), Log: log})
		if err != nil {
			t.Fatal(err)
		}
		run(a.Run)
	}
	t.Cleanup(func() {
		cancel()
		work.Wait()
		api.CloseIdle()
	})
	return rec
}

// filtered hands out some events and acknowledges the others.
type filtered struct {
	*amqp.Broker
	pass func(cloudevent.Event) bool
}

// Consume is what an adapter consumes by.
func (f filtered) Consume(ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error) error {
	return f.Broker.Consume(ctx, subscription, func(ctx context.Context, e cloudevent.Event) error {
		if f.pass != nil && !f.pass(e) {
			return nil
		}
		return handle(ctx, e)
	})
}

// TestFeedbackLoop is the specification's integration test 4, with three
// adapters that wait for each other: they are told, report on every event with
// the time of their look, whether or not there was anything to do, and the
// sentinel reads what became of it.
func TestFeedbackLoop(t *testing.T) {
	t.Parallel()
	l := newLoop(t, nil, "poll_interval: 100ms\nmax_age_not_ready: 1s\nmax_age_ready: 1h\n")
	begin := time.Now()
	reports := adapters(t, l.url, exchangeOf(t), nil, sampleadapter.ChainedSampleConfigs(sampleadapter.Config{Latency: 20 * time.Millisecond})...)

	c := l.create(t, "cluster-1", "")
	for generation := int64(1); generation <= 2; generation++ {
		if generation == 2 {
			l.patch(t, c.ID)
		}
		l.wantObserved(t, c.ID, generation)
	}
	// Generations match and nothing is due for an hour: only the round that
	// was under way when the last report came may still announce it.
	l.wantRounds(t, 2)
	settled := time.Now()
	l.wantRounds(t, 5)
	for _, e := range l.queue.of(c.ID) {
		if e.Time.After(settled) {
			t.Errorf("event %q at %s although all adapters had reported by %s", e.str("reason"), e.Time, settled)
		}
	}

	wantReports(t, reports, sampleadapter.Validation, begin, "WorkSucceeded")
	wantReports(t, reports, sampleadapter.DNS, begin, "PreconditionsNotMet", "WorkSucceeded")
	wantReports(t, reports, sampleadapter.Provisioning, begin, "PreconditionsNotMet", "WorkSucceeded")
	waiting := firstWith(reports.of(sampleadapter.DNS), "PreconditionsNotMet")
	wantConditions(t, waiting)
}

// wantReports checks that every report of an adapter has a time of the test,
// and that all the given reasons are among them.
func wantReports(t *testing.T, r *recorder, adapter string, begin time.Time, reasons ...string) {
	t.Helper()
	for _, report := range r.of(adapter) {
		text, _ := report["observed_time"].(string)
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil || at.Before(begin) || at.After(time.Now()) {
			t.Errorf("report of %s has the observed_time %q, want a time of now: %v", adapter, text, report)
		}
	}
	for _, reason := range reasons {
		if firstWith(r.of(adapter), reason) == nil {
			t.Errorf("%s never reported %s: %v", adapter, reason, r.of(adapter))
		}
	}
}

// firstWith finds a report whose condition Available has a reason.
func firstWith(reports []map[string]any, reason string) map[string]any {
	for _, report := range reports {
		if conditionsOf(report)["Available"]["reason"] == reason {
			return report
		}
	}
	return nil
}

func conditionsOf(report map[string]any) map[string]map[string]any {
	out := map[string]map[string]any{}
	list, _ := report["conditions"].([]any)
	for _, item := range list {
		if c, ok := item.(map[string]any); ok {
			if name, ok := c["type"].(string); ok {
				out[name] = c
			}
		}
	}
	return out
}

// wantConditions checks the report of an adapter whose precondition is not
// met against the specification's sample.
func wantConditions(t *testing.T, report map[string]any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(specification, "service/report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var sample map[string]any
	if err := json.Unmarshal(raw, &sample); err != nil || len(conditionsOf(sample)) != 3 {
		t.Fatalf("the specification's sample has conditions %v, want 3: %v", conditionsOf(sample), err)
	}
	for name, want := range conditionsOf(sample) {
		got := conditionsOf(report)[name]
		if got["status"] != want["status"] || got["reason"] != want["reason"] || got["message"] == "" {
			t.Errorf("condition %s is %v, want %v and a message", name, got, want)
		}
	}
}

// TestSkippingAdapters holds that a resource whose adapters can do nothing yet
// gets one event per max age, and not one per poll: each report quiets the
// sentinel for that long.
func TestSkippingAdapters(t *testing.T) {
	t.Parallel()
	const age = time.Second
	waits := sampleadapter.Config{Name: sampleadapter.DNS, After: sampleadapter.Validation}
	cases := map[string]struct {
		reason   string
		required string
		want     string // reason of the events after the first
	}{
		"AllSkip":   {"its reports count, and come on every event", "dns", reasonAgeNotReady},
		"OneIsDead": {"the generation is never observed; still it waits for an answer", "dns,validation", reasonGeneration},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLoop(t, map[string]string{"FLEET_API_REQUIRED_ADAPTERS_CLUSTERS": tc.required}, "poll_interval: 50ms\nmax_age_not_ready: 1s\n")
			reports := adapters(t, l.url, exchangeOf(t), nil, waits)
			c := l.create(t, "cluster-1", "")
			events := l.queue.wantEvents(t, c.ID, 5, 5*age+slack)
			for i := 1; i < len(events); i++ {
				if gap := events[i].Time.Sub(events[i-1].Time); gap < age {
					t.Errorf("%s: event %d came %s after the one before, want at least %s", tc.reason, i, gap, age)
				}
				if got := events[i].str("reason"); got != tc.want {
					t.Errorf("%s: event %d has the reason %q, want %q", tc.reason, i, got, tc.want)
				}
				if events[i].ID == events[i-1].ID {
					t.Errorf("%s: two nudges have the id %s", tc.reason, events[i].ID)
				}
			}
			eventually(t, patience, func() error {
				if n := len(reports.of("dns")); n < len(events) {
					return fmt.Errorf("%d reports on %d events, want one each", n, len(events))
				}
				return nil
			})
			if phase := l.get(t, c.ID).Status.Phase; phase == v1.PhaseReady {
				t.Error("the cluster is Ready although its adapter only skips")
			}
		})
	}
}
