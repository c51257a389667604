package changeevent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// The interface, the constructor and the fields that ADR-026 defines.
var (
	_ interface {
		SendChangeEvent(ctx context.Context, event ChangeEvent)
		Close() error
	} = Client(nil)
	_ func(Config) (Client, error) = NewClient
	_                              = Config{
		Enabled: true, Endpoint: "", ClusterName: "", AuthHeader: "", AuthToken: "",
		Timeout: time.Second, ShutdownTimeout: time.Second,
	}
	_ = ChangeEvent{Action: "", NodeName: "", CheckName: "", ErrorCode: "", Agent: "", Reason: "", Timestamp: time.Time{}}
)

func TestClientHasTwoMethods(t *testing.T) {
	var names []string
	for m := range reflect.TypeFor[Client]().Methods() {
		names = append(names, m.Name)
	}
	if want := []string{"Close", "SendChangeEvent"}; !slices.Equal(names, want) {
		t.Errorf("Client has %v, want %v", names, want)
	}
}

func TestEventArrives(t *testing.T) {
	sink := new(script)
	cfg := enabled(sink)
	cfg.AuthToken, cfg.DryRun, cfg.Source = "abc\n", true, "nvsentinel/node-drainer"
	at := time.Now().Add(-time.Minute)
	d := sendOne(t, cfg, ChangeEvent{
		Action: ActionCordon, NodeName: "gpu-node-01", CheckName: "xid-check", ErrorCodes: []string{"XID-79", "XID-48"},
		Agent: "syslog-health-monitor", IsFatal: true, Message: "GPU error detected", Timestamp: at,
	})
	if d.Class != "" || d.Status != http.StatusOK || d.Attempts != 1 || d.Permanent || d.At.IsZero() || d.ID == "" {
		t.Errorf("delivery %+v, want a success in one attempt", d)
	}
	calls := sink.got()
	if len(calls) != 1 {
		t.Fatalf("%d requests, want 1", len(calls))
	}
	if want := "https://events.example.com/changes/my-cluster-name"; calls[0].url != want {
		t.Errorf("sent to %s, want %s", calls[0].url, want)
	}
	want := http.Header{
		"Content-Type": {"application/json"}, "Authorization": {"abc"}, "Idempotency-Key": {d.ID}, "User-Agent": {"fleetloop"},
	}
	if diff := cmp.Diff(want, calls[0].header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	var p Payload
	if err := json.Unmarshal([]byte(calls[0].body), &p); err != nil {
		t.Fatal(err)
	}
	if p.Source != "nvsentinel/node-drainer" || p.Cluster != "my-cluster-name" || p.Node != "gpu-node-01" || !p.DryRun || p.ID != d.ID ||
		!p.HealthEvent.IsFatal || p.HealthEvent.Message != "GPU error detected" || p.HealthEvent.ErrorCode != "XID-79,XID-48" || p.Timestamp != CanonicalTime(at) {
		t.Errorf("payload %+v of %+v", p, p.HealthEvent)
	}
}

func TestEventSaysItsOwnSourceClusterAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := new(script)
		c := start(t, enabled(sink))
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionClusterCreated, Cluster: "eu/1", Source: SourceFleetAPI})
		time.Sleep(time.Second)
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionClusterCreated, Cluster: ".."})
		stop(t, c)
		calls := sink.got()
		if len(calls) != 1 || calls[0].url != "https://events.example.com/changes/eu%2F1" {
			t.Fatalf("calls %+v, want one for the cluster of the event, and none for one that climbs out of the path", calls)
		}
		if want := `"timestamp":"2000-01-01T00:00:00.000Z","source":"fleetloop/fleet-api","cluster":"eu/1"`; !strings.Contains(calls[0].body, want) {
			t.Errorf("body %s, want %s: the time is that of the call", calls[0].body, want)
		}
		if s := statsOf(t, c); s.FailuresByClass[ClassEncode] != 1 {
			t.Errorf("stats %+v, want one event that cannot be sent", s)
		}
	})
}

func TestNothingHappensWithoutAClient(t *testing.T) {
	disabled, err := NewClient(Config{})
	if err != nil || disabled == nil {
		t.Fatalf("a zero configuration gives %v, %v; want a client that does nothing", disabled, err)
	}
	sink := new(script)
	off := enabled(sink)
	off.Enabled = false
	reg := prometheus.NewRegistry()
	off.Registerer = reg
	switched, err := NewClient(off)
	if err != nil {
		t.Fatal(err)
	}
	var typed *client
	closed := start(t, enabled(sink))
	stop(t, closed)
	clients := map[string]Client{
		"Zero": disabled, "Disabled": switched, "TypedNil": typed, "OrNopOfNil": OrNop(nil), "OrNopOfTypedNil": OrNop(typed), "Closed": closed,
	}
	before := startedGoroutines()
	for name, c := range clients {
		var told deliveries
		for range 100 {
			c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: "n", OnDelivery: told.add})
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
		if n := len(told.got()); n > 0 {
			t.Errorf("%s: told of %d events that were not accepted", name, n)
		}
	}
	if after := startedGoroutines(); after > before {
		t.Errorf("%d goroutines became %d", before, after)
	}
	if n := len(sink.got()); n > 0 {
		t.Errorf("%d requests, want none", n)
	}
	if families, err := reg.Gather(); err != nil || len(families) > 0 {
		t.Errorf("metrics of a disabled client: %v, %v; want none", families, err)
	}
	if _, ok := StatsOf(disabled); ok {
		t.Error("a client that does nothing tells something of itself")
	}
	if _, ok := StatsOf(typed); ok {
		t.Error("a nil client tells something of itself")
	}
	if c := start(t, enabled(sink)); OrNop(c) != c {
		t.Error("OrNop changes a client that there is")
	}
}

func TestManySendersLoseNothing(t *testing.T) {
	sink := new(script)
	reg := prometheus.NewRegistry()
	cfg := enabled(sink)
	cfg.Registerer, cfg.QueueSize = reg, 1000
	c := start(t, cfg)
	var senders sync.WaitGroup
	var told atomic.Int64
	for i := range 1000 {
		senders.Go(func() {
			c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: "n" + strconv.Itoa(i), OnDelivery: func(Delivery) { told.Add(1) }})
		})
	}
	senders.Wait()
	stop(t, c)
	if n := len(sink.got()); n != 1000 {
		t.Errorf("%d requests, want 1000", n)
	}
	if told.Load() != 1000 {
		t.Errorf("told %d times, want 1000", told.Load())
	}
	wantCounted(t, c, reg, 1000)
}

// startedGoroutines returns the number of goroutines that this package has started. Others, such as one
// that runs finalizers, come and go.
func startedGoroutines() int {
	return bytes.Count(allStacks(), []byte("created by github.com/fleetloop/fleetloop/changeevent."))
}

func allStacks() []byte {
	stacks := make([]byte, 16<<20)
	return stacks[:runtime.Stack(stacks, true)]
}

// bubbleGoroutines returns the number of goroutines of this synctest bubble.
func bubbleGoroutines(t *testing.T) int {
	t.Helper()
	stacks := allStacks()
	first, _, _ := bytes.Cut(stacks, []byte("\n")) // of this goroutine
	bubble := regexp.MustCompile(`synctest bubble \d+\]`).Find(first)
	if bubble == nil {
		t.Fatalf("no bubble in %q", first)
	}
	return bytes.Count(stacks, bubble)
}

// TestSinkThatHangsHoldsNobodyUp tests the worst case: the sink never responds, and all
// callers send.
func TestSinkThatHangsHoldsNobodyUp(t *testing.T) {
	const senders, sends = 64, 10_000 / 64
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		cfg := enabled(&script{answer: hang})
		cfg.Registerer = reg
		c := start(t, cfg)
		synctest.Wait()
		before := bubbleGoroutines(t)
		began := time.Now()
		var told atomic.Int64
		var all sync.WaitGroup
		for i := range senders {
			all.Go(func() {
				for j := range sends {
					c.SendChangeEvent(t.Context(), ChangeEvent{
						Action: ActionCordon, NodeName: fmt.Sprint("n", i, "-", j), OnDelivery: func(Delivery) { told.Add(1) },
					})
				}
			})
		}
		all.Wait() // the fake clock advances only while all goroutines are blocked
		if took := time.Since(began); took > 0 {
			t.Errorf("sending took %s: somebody has waited", took)
		}
		synctest.Wait()
		if after := bubbleGoroutines(t); after > before {
			t.Errorf("%d goroutines became %d", before, after)
		}
		s := statsOf(t, c)
		if s.Pending > DefaultQueueSize+DefaultMaxConcurrentRequests {
			t.Errorf("%d events are held, want at most %d", s.Pending, DefaultQueueSize+DefaultMaxConcurrentRequests)
		}
		if uint64(told.Load()) != s.Dropped || s.Dropped == 0 || s.LastErrorClass != ClassQueueFull {
			t.Errorf("told of %d while %d had to make way", told.Load(), s.Dropped)
		}
		if err := c.Close(); err == nil {
			t.Error("Close of a client whose sink hangs: want an error")
		}
		if told.Load() != senders*sends {
			t.Errorf("told of %d events, want each of %d once", told.Load(), senders*sends)
		}
		wantCounted(t, c, reg, senders*sends)
	})
}

func TestOldestMakesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		sink := &script{answer: func(int, *http.Request) (*http.Response, error) {
			<-release
			return status(http.StatusOK), nil
		}}
		var log logged
		cfg := enabled(sink)
		cfg.MaxConcurrentRequests, cfg.QueueSize, cfg.Logger = 1, 3, log.logger()
		c := start(t, cfg)
		var told deliveries
		send := func(id string) {
			c.SendChangeEvent(t.Context(), ChangeEvent{ID: id, Action: ActionCordon, OnDelivery: told.add})
		}
		send("in hand")
		synctest.Wait()
		for i := range 5 {
			send(strconv.Itoa(i))
		}
		synctest.Wait()
		want := []Delivery{{ID: "0", Class: ClassQueueFull, At: time.Now()}, {ID: "1", Class: ClassQueueFull, At: time.Now()}}
		if diff := cmp.Diff(want, told.got()); diff != "" {
			t.Errorf("told while nothing is answered (-want +got):\n%s", diff)
		}
		if s := statsOf(t, c); s.Pending != 4 {
			t.Errorf("%d pending, want 4: the queue and the one in hand", s.Pending)
		}
		close(release)
		stop(t, c)
		var ids []string
		for _, d := range told.got()[2:] {
			ids = append(ids, d.ID+string(d.Class))
		}
		if want := []string{"in hand", "2", "3", "4"}; !slices.Equal(ids, want) {
			t.Errorf("delivered %v, want %v in this order", ids, want)
		}
		log.want(t, "change events not delivered", "class=queue_full", "faster than the sink")
	})
}

func TestContextIsForItsValuesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []any
		sink := &script{answer: func(_ int, r *http.Request) (*http.Response, error) {
			seen = append(seen, r.Context().Value(carried{}))
			timer := time.NewTimer(500 * time.Millisecond)
			defer timer.Stop()
			select {
			case <-timer.C:
				return status(http.StatusOK), nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}}
		var traces traceHandler
		cfg := once(sink)
		cfg.Timeout, cfg.MaxConcurrentRequests, cfg.Logger = 2*time.Second, 1, slog.New(&traces)
		c := start(t, cfg)
		var told deliveries
		send := func(ctx context.Context) {
			c.SendChangeEvent(ctx, ChangeEvent{Action: ActionCordon, OnDelivery: told.add})
		}
		after, cancel := context.WithCancel(withTrace(t.Context(), "after"))
		send(after)
		cancel()
		send(after)
		short, stopShort := context.WithTimeout(withTrace(t.Context(), "deadline"), 10*time.Millisecond)
		defer stopShort()
		send(short)
		send(nil)
		stop(t, c)
		if diff := cmp.Diff([]any{"after", "after", "deadline", nil}, seen); diff != "" {
			t.Errorf("values of the callers (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]any{"after", "after", "deadline", nil}, traces.seen); diff != "" {
			t.Errorf("values of the callers in the log (-want +got):\n%s", diff)
		}
		for _, d := range told.got() {
			if d.Class != "" {
				t.Errorf("delivery %+v: the end of the caller has ended it", d)
			}
		}
	})
}

// A traceHandler reads the trace from the context of each line, like handlers that add it
// to the log.
type traceHandler struct{ seen []any }

func (h *traceHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *traceHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *traceHandler) WithGroup(string) slog.Handler            { return h }

func (h *traceHandler) Handle(ctx context.Context, _ slog.Record) error {
	h.seen = append(h.seen, ctx.Value(carried{}))
	return nil
}
