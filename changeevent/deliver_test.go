package changeevent

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

func TestAttemptIsCutAfterTimeout(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"Default": 0, "Own": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := once(&script{answer: after(12*time.Second, http.StatusOK)})
				cfg.Timeout = timeout
				want := timeout
				if want == 0 {
					want = 10 * time.Second
				}
				c := start(t, cfg)
				var told deliveries
				c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, OnDelivery: told.add})
				began := time.Now()
				time.Sleep(want - 1)
				synctest.Wait()
				if n := len(told.got()); n > 0 {
					t.Fatalf("given up before %s", want)
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				got := told.got()
				if len(got) != 1 || got[0].Class != ClassTimeout || got[0].At.Sub(began) != want {
					t.Errorf("deliveries %+v, want a timeout after %s", got, want)
				}
			})
		})
	}
}

// times holds the times of requests, relative to the first.
type times struct {
	mu  sync.Mutex
	all []time.Time
}

func (x *times) note() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = append(x.all, time.Now())
}

func (x *times) waits() []time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	var waits []time.Duration
	for i := 1; i < len(x.all); i++ {
		waits = append(waits, x.all[i].Sub(x.all[i-1]))
	}
	return waits
}

func TestRetryEndsInTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		retry := Retry{
			MaxAttempts:     rapid.IntRange(0, 5).Draw(rt, "attempts"),
			InitialInterval: time.Duration(rapid.IntRange(100, 5000).Draw(rt, "initial")) * time.Millisecond,
			MaxInterval:     time.Duration(rapid.IntRange(500, 60_000).Draw(rt, "max")) * time.Millisecond,
			MaxElapsedTime:  time.Duration(rapid.IntRange(1, 120).Draw(rt, "elapsed")) * time.Second,
		}
		if problem := retryProblem(t, retry); problem != "" {
			rt.Fatal(problem)
		}
	})
}

// retryProblem returns what is wrong with the delays of retries.
func retryProblem(t *testing.T, retry Retry) (problem string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var came times
		cfg := enabled(&script{answer: func(int, *http.Request) (*http.Response, error) { came.note(); return nil, errScripted }})
		cfg.Retry = retry
		c := start(t, cfg)
		var told deliveries
		began := time.Now()
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, OnDelivery: told.add})
		time.Sleep(2 * retry.MaxElapsedTime)
		synctest.Wait()
		got, waits := told.got(), came.waits()
		if len(got) != 1 || got[0].Class != ClassConnection || got[0].Permanent {
			problem = fmt.Sprintf("deliveries %+v, want one that was given up", got)
			return
		}
		elapsed := got[0].At.Sub(began)
		switch s := statsOf(t, c); {
		case got[0].Attempts != len(waits)+1, s.Retries != uint64(len(waits)):
			problem = fmt.Sprintf("%d attempts and %d retries counted, %d came", got[0].Attempts, s.Retries, len(waits)+1)
		case retry.MaxAttempts > 0 && got[0].Attempts > retry.MaxAttempts:
			problem = fmt.Sprintf("%d attempts, want at most %d", got[0].Attempts, retry.MaxAttempts)
		case elapsed > retry.MaxElapsedTime || got[0].Attempts != retry.MaxAttempts && elapsed != retry.MaxElapsedTime:
			problem = fmt.Sprintf("given up after %s, want by attempts or at %s", elapsed, retry.MaxElapsedTime)
		}
		bound := retry.InitialInterval
		for i, wait := range waits {
			bound = min(bound, retry.MaxInterval)
			if wait > bound {
				problem = fmt.Sprintf("wait %d is %s, want at most %s", i, wait, bound)
			}
			bound *= 2
		}
	})
	return problem
}

func TestSinkSaysWhenToComeBack(t *testing.T) {
	cases := map[string]struct {
		reason string
		code   int
		header []string
		least  time.Duration
		most   time.Duration
	}{
		"Seconds":     {"as it says, and not all at once", 429, []string{"Retry-After", "17"}, 17 * time.Second, 18 * time.Second},
		"Unavailable": {"503 has it as well", 503, []string{"Retry-After", "17"}, 17 * time.Second, 18 * time.Second},
		"Date":        {"the bubble begins at 2000-01-01", 429, []string{"Retry-After", "Sat, 01 Jan 2000 00:00:30 GMT"}, 30 * time.Second, 31 * time.Second},
		"PastDate":    {"that has been", 429, []string{"Retry-After", "Fri, 31 Dec 1999 00:00:00 GMT"}, 0, time.Second},
		"Reset":       {"in seconds, as Datadog has it", 429, []string{"X-RateLimit-Reset", "9"}, 9 * time.Second, 10 * time.Second},
		"ResetEpoch":  {"as a time, as others have it", 429, []string{"X-RateLimit-Reset", "946684820"}, 20 * time.Second, 21 * time.Second},
		"Both":        {"the standard wins", 429, []string{"Retry-After", "5", "X-RateLimit-Reset", "99"}, 5 * time.Second, 6 * time.Second},
		"ResetOf503":  {"it is about rates", 503, []string{"X-RateLimit-Reset", "99"}, 0, time.Second},
		"Long":        {"the sink says when, also beyond MaxElapsedTime", 429, []string{"Retry-After", "1800"}, 30 * time.Minute, 30*time.Minute + time.Second},
		"Negative":    {"there is no such time", 429, []string{"Retry-After", "-5"}, 0, time.Second},
		"Garbage":     {"there is no such time", 429, []string{"Retry-After", "soon"}, 0, time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var came times
				c := start(t, enabled(&script{answer: func(n int, _ *http.Request) (*http.Response, error) {
					came.note()
					if n == 0 {
						return status(tc.code, tc.header...), nil
					}
					return status(http.StatusAccepted), nil
				}}))
				c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon})
				time.Sleep(time.Hour)
				waits := came.waits()
				if len(waits) != 1 || waits[0] < tc.least || waits[0] > tc.most {
					t.Errorf("%s: waits %v, want one between %s and %s", tc.reason, waits, tc.least, tc.most)
				}
			})
		})
	}
}

// TestOnlyOneAttempt tests the configuration of ADR-026: one request per event,
// regardless of the response.
func TestOnlyOneAttempt(t *testing.T) {
	for _, code := range []int{200, 400, 401, 404, 429, 500, 503} {
		sink := &script{answer: func(int, *http.Request) (*http.Response, error) { return status(code, "Retry-After", "1"), nil }}
		cfg := once(sink)
		if d := sendOne(t, cfg, ChangeEvent{Action: ActionCordon}); d.Attempts != 1 || len(sink.got()) != 1 {
			t.Errorf("%d: %d requests, counted %d; want one", code, len(sink.got()), d.Attempts)
		}
	}
}

func TestRetryHoldsUpItsShardAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &script{}
		sink.answer = func(_ int, r *http.Request) (*http.Response, error) {
			if strings.HasPrefix(r.Header.Get("Idempotency-Key"), "sick") {
				return status(http.StatusServiceUnavailable), nil
			}
			return status(http.StatusOK), nil
		}
		c := start(t, enabled(sink))
		own := c.(*client) //nolint:errcheck // it is one
		sick := "n0"
		c.SendChangeEvent(t.Context(), ChangeEvent{ID: "sick", Action: ActionCordon, NodeName: sick})
		time.Sleep(time.Millisecond)
		var told deliveries
		others := 0
		for i := range 100 {
			e := ChangeEvent{Action: ActionCordon, NodeName: "n" + strconv.Itoa(i), OnDelivery: told.add}
			if own.shardOf(&e) != own.shardOf(&ChangeEvent{NodeName: sick}) {
				others++
				c.SendChangeEvent(t.Context(), e)
			}
		}
		synctest.Wait()
		if n := len(told.got()); n != others || others == 0 {
			t.Errorf("%d of %d events of other shards delivered while one waits", n, others)
		}
	})
}

func TestOldEventsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := new(script)
		cfg := enabled(sink)
		cfg.MaxAge = time.Hour
		c := start(t, cfg)
		var told deliveries
		for id, age := range map[string]time.Duration{"old": time.Hour + 1, "fresh": time.Hour, "future": -time.Hour} {
			c.SendChangeEvent(t.Context(), ChangeEvent{ID: id, Action: ActionCordon, NodeName: id, Timestamp: time.Now().Add(-age), OnDelivery: told.add})
		}
		c.SendChangeEvent(t.Context(), ChangeEvent{
			ID: "again", Action: ActionCordon, NodeName: "again", Timestamp: time.Now().Add(-24 * time.Hour), QueuedAt: time.Now(), OnDelivery: told.add,
		})
		stop(t, c)
		got := map[string]Delivery{}
		for _, d := range told.got() {
			got[d.ID] = d
		}
		now := time.Now()
		want := map[string]Delivery{
			"again":  {ID: "again", Status: 200, Attempts: 1, At: now},
			"old":    {ID: "old", Class: ClassExpired, Permanent: true, At: now},
			"fresh":  {ID: "fresh", Status: 200, Attempts: 1, At: now},
			"future": {ID: "future", Status: 200, Attempts: 1, At: now},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("deliveries (-want +got):\n%s", diff)
		}
	})
}

func TestEventsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var came times
		sink := &script{answer: func(int, *http.Request) (*http.Response, error) { came.note(); return status(http.StatusOK), nil }}
		reg := prometheus.NewRegistry()
		cfg := enabled(sink)
		cfg.Format, cfg.Registerer = FormatSlack, reg
		c := start(t, cfg)
		var told deliveries
		send := func(n int) {
			for i := range n {
				c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: "n" + strconv.Itoa(i), OnDelivery: told.add})
			}
		}
		send(30)
		time.Sleep(500 * time.Millisecond)
		send(90)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		calls := sink.got()
		if want := []time.Duration{time.Second, time.Second}; len(calls) != 3 || cmp.Diff(want, came.waits()) != "" {
			t.Fatalf("%d messages with waits %v, want 3 of 50, 50 and 20, a second apart", len(calls), came.waits())
		}
		for i, headline := range []string{"50 changes", "50 changes", "20 changes"} {
			if !strings.Contains(calls[i].body, headline) {
				t.Errorf("message %d lacks %q: %s", i, headline, calls[i].body)
			}
		}
		if calls[0].url != "https://events.example.com/changes" {
			t.Errorf("sent to %s, want the endpoint as it is", calls[0].url)
		}
		if n := len(told.got()); n != 120 {
			t.Errorf("told %d times, want 120", n)
		}
		send(3)
		began := time.Now()
		stop(t, c)
		if took := time.Since(began); took != 0 {
			t.Errorf("Close took %s to gather what was there", took)
		}
		wantCounted(t, c, reg, 123)
	})
}

func TestBatchesHaveOneClusterInThePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := new(script)
		cfg := enabled(sink)
		cfg.Format, cfg.BatchWait, cfg.AppendCluster = FormatCloudEventsBatch, time.Second, new(true)
		c := start(t, cfg)
		for _, cluster := range []string{"a", "a", "b", "a"} {
			c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: "n", Cluster: cluster})
		}
		time.Sleep(time.Minute)
		var got []string
		for _, call := range sink.got() {
			got = append(got, call.url[len("https://events.example.com/changes/"):]+strconv.Itoa(strings.Count(call.body, `"specversion"`)))
		}
		if diff := cmp.Diff([]string{"a2", "b1", "a1"}, got); diff != "" {
			t.Errorf("clusters and events of the requests (-want +got):\n%s", diff)
		}
	})
}

// TestOneEventDoesNotCostTheOthers verifies that the other events of a batch that was
// rejected for its content are delivered in order.
func TestOneEventDoesNotCostTheOthers(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		format Format
		bad    ChangeEvent
		class  Class
	}{
		"Refused":      {"the sink takes all of a request or nothing", FormatCloudEventsBatch, ChangeEvent{Action: "refused", NodeName: "bad"}, ClassClientError},
		"NotWritten":   {"it cannot be written", FormatCloudEventsBatch, ChangeEvent{NodeName: "bad"}, ClassEncode},
		"NotWrittenIn": {"in a message neither", FormatSlack, ChangeEvent{NodeName: "bad"}, ClassEncode},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sink *script
				sink = &script{answer: func(n int, _ *http.Request) (*http.Response, error) {
					if strings.Contains(sink.got()[n].body, "refused") {
						return status(http.StatusUnprocessableEntity), nil
					}
					return status(http.StatusAccepted), nil
				}}
				reg := prometheus.NewRegistry()
				cfg := enabled(sink)
				cfg.Format, cfg.BatchWait, cfg.Registerer = c.format, time.Second, reg
				client := start(t, cfg)
				var told deliveries
				for i := range 20 {
					e := ChangeEvent{Action: ActionCordon, NodeName: "n" + strconv.Itoa(i), ID: strconv.Itoa(i)}
					if i == 13 {
						e = c.bad
						e.ID = "13"
					}
					e.OnDelivery = told.add
					client.SendChangeEvent(t.Context(), e)
				}
				stop(t, client)
				for i, d := range told.got() {
					want := Class("")
					if i == 13 {
						want = c.class
					}
					if d.ID != strconv.Itoa(i) || d.Class != want {
						t.Errorf("%s: event %s, the %dth, has class %q, want %q", c.reason, d.ID, i, d.Class, want)
					}
				}
				if s := statsOf(t, client); s.Succeeded != 19 || s.Failed != 1 {
					t.Errorf("%d succeeded and %d failed, want 19 and 1", s.Succeeded, s.Failed)
				}
				wantCounted(t, client, reg, 20)
			})
		})
	}
}
