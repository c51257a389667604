package changeevent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestCallerKeepsItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := new(script)
		c := start(t, enabled(sink))
		codes, links, details := []string{"XID-79"}, []Link{{Href: "https://x.example/a"}}, map[string]string{"k": "old"}
		e := ChangeEvent{Action: ActionCordon, NodeName: "n", ErrorCodes: codes, Links: links, Details: details}
		c.SendChangeEvent(t.Context(), e)
		codes[0], links[0].Href, details["k"], e.NodeName = "new", "https://x.example/new", "new", "new"
		stop(t, c)
		if body := sink.got()[0].body; strings.Contains(body, "new") {
			t.Errorf("body %s has what came after the call", body)
		}
	})
}

func TestOddEventsDoNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // encoding the huge event takes time, not the clock of the client
		sink := new(script)
		cfg := enabled(sink)
		cfg.Links = []LinkTemplate{{Href: "https://x.example/{node}"}}
		c := start(t, cfg)
		huge := strings.Repeat("\xff\U0001F680", 1<<18)
		events := []ChangeEvent{
			{},
			{Action: ActionCordon, Timestamp: time.Unix(0, 0).AddDate(20000, 0, 0)},
			{Action: huge, NodeName: huge, Message: huge, Reason: huge, ErrorCodes: []string{huge, huge}, Details: map[string]string{huge: huge}, ID: huge, Summary: huge, Cluster: "c"},
			{Action: "a\x00\r\nb", NodeName: "\u2028", Links: []Link{{Href: "::"}}, OnDelivery: func(Delivery) { panic("of the caller") }},
			{Action: ActionCordon, NodeName: "last"},
		}
		for _, e := range events {
			c.SendChangeEvent(t.Context(), e)
		}
		stop(t, c)
		if s := statsOf(t, c); s.Sent != uint64(len(events)) || s.Sent != s.Succeeded+s.Failed+s.Dropped {
			t.Errorf("%d were sent and the client counts %+v", len(events), s)
		}
		for _, call := range sink.got() {
			if len(call.body) > 1<<18 || !json.Valid([]byte(call.body)) {
				t.Errorf("a body of %d bytes that is no small JSON", len(call.body))
			}
		}
	})
}

func TestPanicCostsOneEvent(t *testing.T) {
	sink := &script{answer: func(n int, _ *http.Request) (*http.Response, error) {
		if n == 0 {
			panic("of a library")
		}
		return status(http.StatusOK), nil
	}}
	var log logged
	cfg := enabled(sink)
	cfg.MaxConcurrentRequests, cfg.Logger = 1, log.logger()
	c := start(t, cfg)
	var told deliveries
	for range 2 {
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, OnDelivery: told.add})
	}
	stop(t, c)
	got := told.got()
	if len(got) != 2 || got[0].Class != ClassEncode || !got[0].Permanent || got[1].Class != "" {
		t.Errorf("deliveries %+v, want a failure and a success", got)
	}
	log.want(t, "of a library")
}

func TestNodesAreToldInOrder(t *testing.T) {
	var mu sync.Mutex
	last := map[string]int{}
	sink := &script{answer: func(n int, r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		id := r.Header.Get("Idempotency-Key")
		node, number, _ := strings.Cut(id, "/")
		at, err := strconv.Atoi(number)
		if err != nil || at != last[node]+1 {
			t.Errorf("%s comes after %d", id, last[node])
		}
		if n%7 == 3 { // a repeated event
			return status(http.StatusServiceUnavailable), nil
		}
		last[node] = at
		return status(http.StatusOK), nil
	}}
	cfg := enabled(sink)
	cfg.Retry.InitialInterval = time.Microsecond
	c := start(t, cfg)
	const nodes, each = 20, 10
	for i := 1; i <= each; i++ {
		for node := range nodes {
			c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: "n" + strconv.Itoa(node), ID: fmt.Sprintf("n%d/%d", node, i)})
		}
	}
	for statsPending(c) > 0 { // retries end with Close
		runtime.Gosched()
	}
	stop(t, c)
	for node, at := range last {
		if at != each {
			t.Errorf("%s got to %d, want %d", node, at, each)
		}
	}
}

// statsPending returns how many events are not settled.
func statsPending(c Client) int {
	s, _ := StatsOf(c)
	return s.Pending
}

func TestActionsThatASinkDoesNotWant(t *testing.T) {
	cases := map[string]struct {
		reason     string
		actions    []string
		extensions bool
		want       []string
	}{
		"Default":    {"what is asked for is not sent unless it is", nil, false, []string{ActionCordon, "own"}},
		"Extensions": {"all", nil, true, []string{ActionCordon, "own", ActionBudgetExhausted}},
		"Listed":     {"these alone, an extension as well", []string{ActionBudgetExhausted, "own"}, false, []string{"own", ActionBudgetExhausted}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sink := new(script)
			cfg := enabled(sink)
			reg := prometheus.NewRegistry()
			cfg.Actions, cfg.IncludeOptionalActions, cfg.Registerer = tc.actions, tc.extensions, reg
			c := start(t, cfg)
			var told deliveries
			for _, action := range []string{ActionCordon, "own", ActionBudgetExhausted} {
				c.SendChangeEvent(t.Context(), ChangeEvent{Action: action, NodeName: "n", ID: action, OnDelivery: told.add})
			}
			stop(t, c)
			var sent []string
			for _, call := range sink.got() {
				sent = append(sent, call.header.Get("Idempotency-Key"))
			}
			if diff := cmp.Diff(tc.want, sent); diff != "" {
				t.Errorf("%s: sent (-want +got):\n%s", tc.reason, diff)
			}
			for _, d := range told.got() {
				if tried := slices.Contains(tc.want, d.ID); d.Class != "" || tried != (d.Attempts > 0) {
					t.Errorf("%s: delivery %+v", tc.reason, d)
				}
			}
			if n := len(told.got()); n != 3 {
				t.Errorf("%s: told %d times, want 3: nobody waits for what will not come", tc.reason, n)
			}
			wantCounted(t, c, reg, len(tc.want))
		})
	}
}

func TestSendAllocatesNothingOfItsOwn(t *testing.T) {
	release := make(chan struct{})
	sink := &script{answer: func(int, *http.Request) (*http.Response, error) { <-release; return status(http.StatusOK), nil }}
	cfg := enabled(sink)
	cfg.MaxConcurrentRequests, cfg.QueueSize = 1, 64
	c := start(t, cfg)
	e := ChangeEvent{Action: ActionCordon, NodeName: "n", CheckName: "c", ErrorCode: "e", Message: "m"}
	for range 200 { // the queue grows and overflows
		c.SendChangeEvent(t.Context(), e)
	}
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { c.SendChangeEvent(ctx, e) }); n > 0 {
		t.Errorf("a send allocates %v times, want 0", n)
	}
	close(release)
	stop(t, c)
}
