package adapter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	api := map[string]string{"HYPERFLEET_API_ENDPOINT": "http://localhost:8080"}
	with := func(env map[string]string, name, value string) map[string]string {
		out := map[string]string{name: value}
		maps.Copy(out, env)
		return out
	}
	cases := map[string]struct {
		reason string
		cfg    Config
		env    map[string]string
		want   string // empty means success
	}{
		"NoName":        {"a report needs one", Config{}, with(api, "BROKER_TYPE", "nats"), "lower-case DNS label"},
		"Name":          {"the API rejects it in every report", Config{Name: "DNS"}, with(api, "BROKER_TYPE", "nats"), "lower-case DNS label"},
		"NoAPI":         {"reports have nowhere to go", Config{Name: "dns"}, nil, "fleet API is not set"},
		"NoBroker":      {"events come from nowhere", Config{Name: "dns"}, api, "BROKER_TYPE is required"},
		"UnknownBroker": {"it names those that exist", Config{Name: "dns"}, with(api, "BROKER_TYPE", "kafka"), `"kafka": use rabbitmq, pubsub or nats`},
		"BrokerSetting": {"the settings of the broker are checked", Config{Name: "dns"}, with(api, "BROKER_TYPE", "pubsub"), "project_id is required"},
		"Negative":      {"no such number", Config{Name: "dns", MaxAttempts: -1}, with(api, "BROKER_TYPE", "nats"), "negative"},
		"NegativeDelay": {"no such time", Config{Name: "dns", RetryDelay: -1}, with(api, "BROKER_TYPE", "nats"), "negative"},
		"Environment":   {"everything comes from the environment", Config{Name: "dns"}, with(with(api, "BROKER_TYPE", "rabbitmq"), "BROKER_HOST", "localhost"), ""},
		"Config":        {"the configuration comes first", Config{Name: "dns", Broker: BrokerConfig{Type: "gcp-pubsub", ProjectID: "p"}, Fleet: FleetConfig{Endpoint: "http://localhost"}}, nil, ""},
	}
	for name, tc := range cases {
		env := func(name string) (string, bool) { v, ok := tc.env[name]; return v, ok }
		_, err := New(tc.cfg, ReconcilerFunc(available), Deps{Env: env})
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %s: got %v, want an error with %q", name, tc.reason, err, tc.want)
		}
	}
	if _, err := New(Config{Name: "dns"}, nil, Deps{Consumer: newFakeBroker(), Fleet: newFakeFleet()}); err == nil {
		t.Error("New without a reconciler = nil, want an error")
	}
}

// TestEveryEventIsReported is the status contract: a report with the generation and the time of the
// evaluation, also if nothing was to do.
func TestEveryEventIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		fleet.generation = 7
		start(t, newAdapter(t, Config{}, func(ctx context.Context, r Resource) (Report, error) {
			time.Sleep(time.Second)
			return Waiting("Waiting for validation to complete"), nil
		}, Deps{Consumer: broker, Fleet: fleet}))
		for n := range 3 {
			begin := time.Now()
			broker.queue <- event(fmt.Sprint(n), "r1")
			time.Sleep(time.Minute)
			reports := fleet.of("r1")
			if len(reports) != n+1 {
				t.Fatalf("%d reports after %d events", len(reports), n+1)
			}
			at := begin.Add(time.Second).UTC()
			want := v1.Report{Adapter: "dns", ObservedGeneration: 7, ObservedTime: &at, Conditions: []v1.ReportCondition{
				{Type: "Available", Status: "False", Reason: "PreconditionsNotMet", Message: "Waiting for validation to complete"},
				{Type: "Applied", Status: "False", Reason: "PreconditionsNotMet", Message: "Waiting for validation to complete"},
				{Type: "Health", Status: "True", Reason: "NoErrors", Message: "Adapter is healthy"},
			}}
			if diff := cmp.Diff(want, reports[n]); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		}
		if acked, dead, returned := broker.counts(); acked != 3 || dead+returned != 0 {
			t.Errorf("%d acknowledged, %d dead-lettered, %d returned; want 3 acknowledged", acked, dead, returned)
		}
	})
}

// TestOutcomes holds what happens to an event, and how it is counted.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	failing := func(call string, err error) func(string) error {
		return func(c string) error {
			if c == call {
				return err
			}
			return nil
		}
	}
	broken := func(context.Context, Resource) (Report, error) { return Report{}, errors.New("no zone") }
	cases := map[string]struct {
		reason    string
		event     Event
		reconcile ReconcilerFunc
		fleet     func(*fakeFleet)
		want      Outcome
		answer    string // acked, dead or returned
		reports   int
	}{
		"Reported":     {"the normal case", event("e1", "r1"), available, nil, OutcomeReported, "acked", 1},
		"Discarded":    {"the API has something newer", event("e1", "r1"), available, func(f *fakeFleet) { f.discard = true }, OutcomeDiscarded, "acked", 0},
		"Gone":         {"nothing is to report on", event("e1", "r1"), available, func(f *fakeFleet) { f.err = failing("get", apiError(404)) }, OutcomeGone, "acked", 0},
		"GoneLater":    {"it was deleted meanwhile", event("e1", "r1"), available, func(f *fakeFleet) { f.err = failing("report", apiError(404)) }, OutcomeGone, "acked", 0},
		"Rejected":     {"the same report is rejected again", event("e1", "r1"), available, func(f *fakeFleet) { f.err = failing("report", apiError(422)) }, OutcomeRejected, "dead", 0},
		"Unauthorized": {"a token is corrected without the event", event("e1", "r1"), available, func(f *fakeFleet) { f.err = failing("get", apiError(401)) }, OutcomeUnavailable, "returned", 0},
		"TooMany":      {"later it works", event("e1", "r1"), available, func(f *fakeFleet) { f.err = failing("report", apiError(429)) }, OutcomeUnavailable, "returned", 0},
		"Down":         {"later it works", event("e1", "r1"), available, func(f *fakeFleet) { f.err = failing("statuses", errDown) }, OutcomeUnavailable, "returned", 0},
		"Failed":       {"it is reported and tried again", event("e1", "r1"), broken, nil, OutcomeFailed, "returned", 1},
		"FailedDown":   {"a failure is not over before it is reported", event("e1", "r1"), broken, func(f *fakeFleet) { f.err = failing("report", errDown) }, OutcomeUnavailable, "returned", 0},
		"Panic":        {"a panic is a failure", event("e1", "r1"), func(context.Context, Resource) (Report, error) { panic("no zone") }, nil, OutcomeFailed, "returned", 1},
		"Permanent":    {"no retry helps", event("e1", "r1"), func(context.Context, Resource) (Report, error) { return Report{}, Permanent(errors.New("no zone")) }, nil, OutcomeDeadLettered, "dead", 1},
		"NoReport":     {"the API would not know whether it is available", event("e1", "r1"), func(context.Context, Resource) (Report, error) { return Report{}, nil }, nil, OutcomeFailed, "returned", 1},
		"Finalized":    {"a resource that lives cannot be finalized", event("e1", "r1"), func(context.Context, Resource) (Report, error) { return Finalized("gone"), nil }, nil, OutcomeFailed, "returned", 1},
		"NoJSON":       {"no redelivery makes it one", Event{ID: "e1", Type: "com.redhat.hyperfleet.cluster.reconcile", Data: []byte("{")}, available, nil, OutcomeIgnored, "acked", 0},
		"OtherType":    {"not an event of a sentinel", Event{ID: "e1", Type: "com.example.cluster", Data: []byte(`{"id":"r1"}`)}, available, nil, OutcomeIgnored, "acked", 0},
		"OtherKind":    {"another adapter reports on it", Event{ID: "e1", Type: "com.redhat.hyperfleet.nodepool.reconcile", Data: []byte(`{"id":"r1"}`)}, available, nil, OutcomeIgnored, "acked", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fleet, broker, reg := newFakeFleet(), newFakeBroker(), prometheus.NewRegistry()
				if tc.fleet != nil {
					tc.fleet(fleet)
				}
				var results []Result
				a := newAdapter(t, Config{Collections: []string{v1.CollectionClusters}}, tc.reconcile, Deps{
					Consumer: broker, Fleet: fleet, Registerer: reg, OnResult: func(r Result) { results = append(results, r) },
				})
				stop := start(t, a)
				broker.queue <- tc.event
				synctest.Wait()
				acked, dead, returned := broker.counts()
				if got := map[string]int{"acked": acked, "dead": dead, "returned": returned}; got[tc.answer] != 1 || acked+dead+returned != 1 {
					t.Errorf("%s: the event was %v, want it %s", tc.reason, got, tc.answer)
				}
				if n := testutil.ToFloat64(a.metrics.events.WithLabelValues(string(tc.want))); n != 1 {
					t.Errorf("%s: counted %g times as %s, want once", tc.reason, n, tc.want)
				}
				if len(results) != 1 || results[0].Outcome != tc.want {
					t.Errorf("%s: results %+v, want one with %s", tc.reason, results, tc.want)
				}
				reports := fleet.of("r1")
				if len(reports) != tc.reports {
					t.Errorf("%s: %d reports, want %d", tc.reason, len(reports), tc.reports)
				}
				for _, r := range reports {
					if got := statusOfCondition(r, "Available"); tc.want != OutcomeReported && got != "False ReconcileFailed" {
						t.Errorf("%s: Available is %q, want it False", tc.reason, got)
					}
				}
				stop()
				problems, err := testutil.GatherAndLint(reg)
				if err != nil || len(problems) > 0 {
					t.Errorf("metrics: %v, %v", problems, err)
				}
			})
		})
	}
}

// TestRetries checks the delays, a report for each failure, and the dead letter.
func TestRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		failures := 100
		start(t, newAdapter(t, Config{MaxAttempts: 6, RetryDelay: time.Second, MaxRetryDelay: 6 * time.Second}, func(context.Context, Resource) (Report, error) {
			if failures--; failures >= 0 {
				return Available("a claim beside an error does not count"), errors.New("no zone")
			}
			return Available("done"), nil
		}, Deps{Consumer: broker, Fleet: fleet}))
		broker.queue <- event("e1", "r1")
		time.Sleep(time.Hour)
		if _, dead, _ := broker.counts(); dead != 1 {
			t.Fatalf("%d events dead-lettered after an hour, want 1", dead)
		}
		for i, seconds := range []float64{1, 2, 4, 6, 6} {
			if got := broker.delays[i].Seconds(); got > seconds || got < 0.8*seconds {
				t.Errorf("retry %d came after %g s, want 80 to 100 %% of %g s", i+1, got, seconds)
			}
		}
		reports := fleet.of("r1")
		if len(reports) != 6 || len(broker.delays) != 5 {
			t.Fatalf("%d reports and %d retries, want 6 and 5", len(reports), len(broker.delays))
		}
		for i, r := range reports {
			health := "True NoErrors"
			if i == 5 {
				health = "False RetriesExhausted"
			}
			if got := []string{statusOfCondition(r, "Available"), statusOfCondition(r, "Health")}; got[0] != "False ReconcileFailed" || got[1] != health {
				t.Errorf("report %d has Available and Health %q, want failed and %q", i+1, got, health)
			}
		}
		failures = 2
		broker.queue <- event("e2", "r1") // the sentinel's next
		time.Sleep(time.Minute)
		if got := statusOfCondition(fleet.of("r1")[8], "Available"); got != "True WorkSucceeded" {
			t.Errorf("after the repair Available is %q", got)
		}
	})
}

// TestFleetOutage checks that errors of the fleet API do not use up the attempts.
func TestFleetOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		fails := true
		a := newAdapter(t, Config{MaxAttempts: 2}, func(context.Context, Resource) (Report, error) {
			if fails {
				return Report{}, errors.New("no zone")
			}
			return Available("done"), nil
		}, Deps{Consumer: broker, Fleet: fleet, OnResult: func(r Result) { fails = r.Outcome == OutcomeUnavailable }})
		if a.Ready() == nil {
			t.Error("Ready() before Run = nil, want a reason")
		}
		start(t, a)
		fleet.set(func(f *fakeFleet) { f.err = func(string) error { return errDown } })
		broker.queue <- event("e1", "r1")
		time.Sleep(time.Hour)
		if err := a.Ready(); !errors.Is(err, errDown) {
			t.Errorf("Ready() = %v, want the error of the API", err)
		}
		if acked, dead, returned := broker.counts(); acked+dead != 0 || returned < 60 || returned > 90 {
			t.Errorf("%d acknowledged, %d dead-lettered, %d returned in an hour; want some 65 returned", acked, dead, returned)
		}
		fleet.set(func(f *fakeFleet) { f.err = nil })
		time.Sleep(2 * time.Minute)
		if acked, dead, _ := broker.counts(); acked != 1 || dead != 0 || len(fleet.of("r1")) != 2 || a.Ready() != nil {
			t.Errorf("after the outage %d acknowledged, %d reports, Ready() = %v", acked, len(fleet.of("r1")), a.Ready())
		}
		broker.ready = errors.New("not connected")
		if err := a.Ready(); !errors.Is(err, broker.ready) {
			t.Errorf("Ready() = %v, want the error of the broker", err)
		}
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		start(t, newAdapter(t, Config{Timeout: time.Minute, MaxAttempts: 1}, func(ctx context.Context, _ Resource) (Report, error) {
			<-ctx.Done()
			return Report{}, context.Cause(ctx)
		}, Deps{Consumer: broker, Fleet: fleet}))
		broker.queue <- event("e1", "r1")
		time.Sleep(time.Minute + time.Second)
		if r := fleet.of("r1"); len(r) != 1 || r[0].Conditions[0].Message != errTimeout.Error() {
			t.Errorf("reports %+v, want one about the timeout", r)
		}
	})
}

// TestTraces checks that the trace of an event reaches Reconcile and the fleet API.
func TestTraces(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	for name, deps := range map[string]Deps{"Propagated": {}, "Recorded": {TracerProvider: provider}} {
		fleet, broker := newFakeFleet(), newFakeBroker()
		fleet.reported = make(chan struct{}, 1)
		deps.Consumer, deps.Fleet = broker, fleet
		var seen trace.SpanContext
		stop := start(t, newAdapter(t, Config{}, func(ctx context.Context, _ Resource) (Report, error) {
			seen = trace.SpanContextFromContext(ctx)
			return Available("done"), nil
		}, deps))
		e := event("e1", "r1")
		e.TraceParent = parent
		broker.queue <- e
		<-fleet.reported
		stop()
		called := trace.SpanContextFromContext(fleet.calls[0])
		for _, c := range []trace.SpanContext{seen, called} {
			if c.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
				t.Errorf("%s: trace %s, want that of the event", name, c.TraceID())
			}
		}
	}
	ended := spans.Ended()
	if len(ended) != 1 || ended[0].Parent().SpanID().String() != "b7ad6b7169203331" || ended[0].SpanKind() != trace.SpanKindConsumer {
		t.Errorf("spans %v, want one of a consumer whose parent is the event's", ended)
	}
}

func TestRetire(t *testing.T) {
	t.Parallel()
	fleet := newFakeFleet()
	fleet.deleted, fleet.generation = true, 4
	n := 0
	fleet.err = func(call string) error {
		if call == "list nodepools" {
			return errDown
		}
		if call == "report" {
			if n++; n == 2 {
				return apiError(404)
			}
		}
		return nil
	}
	a := newAdapter(t, Config{Collections: []string{v1.CollectionNodePools, v1.CollectionClusters}}, available, Deps{Consumer: newFakeBroker(), Fleet: fleet})
	finalized, err := a.Retire(t.Context())
	if finalized != 2 || !errors.Is(err, errDown) || errors.Is(err, apiError(404)) {
		t.Errorf("Retire() = %d, %v; want the two clusters that still exist, and the error of the node pools", finalized, err)
	}
	for _, id := range []string{"r1", "r3"} {
		r := fleet.of(id)
		if len(r) != 1 || r[0].ObservedGeneration != 4 || statusOfCondition(r[0], "Finalized") != "True CleanupComplete" {
			t.Errorf("reports on %s are %+v, want one with Finalized", id, r)
		}
	}
	a = newAdapter(t, Config{}, available, Deps{Consumer: newFakeBroker(), Fleet: struct{ Fleet }{fleet}})
	if _, err := a.Retire(t.Context()); err == nil || !strings.Contains(err.Error(), "ListDeleting") {
		t.Errorf("Retire() of a fleet without a list = %v, want an error", err)
	}
}

func TestRunEndsWithItsConsumer(t *testing.T) {
	t.Parallel()
	failure := errors.New("no such subscription")
	for want, err := range map[string]error{`consume "adapter-dns": no such subscription`: failure, "stopped unexpectedly": nil} {
		a := newAdapter(t, Config{}, available, Deps{Consumer: consumerFunc(func() error { return err }), Fleet: newFakeFleet()})
		if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run() = %v, want %q", err, want)
		}
	}
}

// TestRunWaitsForWork uses a consumer that returns before its handler does, as a client may.
func TestRunWaitsForWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet := newFakeFleet()
		handled := make(chan error, 1)
		a := newAdapter(t, Config{}, func(context.Context, Resource) (Report, error) {
			time.Sleep(time.Second)
			return Available("done"), nil
		}, Deps{Fleet: fleet, Consumer: hastyConsumer(func(handle func(context.Context, Event) error) {
			go func() { handled <- handle(t.Context(), event("e1", "r1")) }()
			synctest.Wait()
		})})
		begin := time.Now()
		if err := a.Run(t.Context()); err == nil || time.Since(begin) != time.Second || len(fleet.of("r1")) != 1 || <-handled != nil {
			t.Errorf("Run() = %v after %s with %d reports, want it to wait for the work", err, time.Since(begin), len(fleet.of("r1")))
		}
	})
}

type hastyConsumer func(handle func(context.Context, Event) error)

func (f hastyConsumer) Consume(_ context.Context, _ string, handle func(context.Context, Event) error) error {
	f(handle)
	return nil
}

type consumerFunc func() error

func (f consumerFunc) Consume(context.Context, string, func(context.Context, Event) error) error {
	return f()
}
