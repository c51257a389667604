package sentinel_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// fleet returns an API with n due resources.
func fleet(n int) *fakeAPI {
	api := newAPI()
	for i := range n {
		id := fmt.Sprintf("r%05d", i)
		api.put(cluster(id, "", 1, 0))
	}
	return api
}

// probes is the number of test requests to a server without tokens.
const probes = 2

// TestPages: whatever way of paging the server knows, every resource is seen,
// and none is published twice in a round.
func TestPages(t *testing.T) {
	const n = 57
	cases := map[string]struct {
		reason       string
		change       func(*fakeAPI)
		size         int
		wantRequests int
		wantAgain    int // in the next round
	}{
		"Tokens":         {reason: "8 pages", size: 8, wantRequests: 8, wantAgain: 8},
		"TokensOnePage":  {reason: "all at once", size: 500, wantRequests: 1, wantAgain: 1},
		"TokensExact":    {reason: "the last page is full", size: 19, wantRequests: 3, wantAgain: 3},
		"TokensCapped":   {reason: "the server gives less than asked for", change: func(a *fakeAPI) { a.most = 10 }, size: 500, wantRequests: 6, wantAgain: 6},
		"Numbers":        {reason: "20 at first, then by numbers, and from then on", change: func(a *fakeAPI) { a.tokens = false }, size: 30, wantRequests: 1 + probes + 2, wantAgain: 2},
		"NumbersCapped":  {reason: "the server gives less than asked for", change: func(a *fakeAPI) { a.tokens, a.most = false, 10 }, size: 30, wantRequests: 1 + probes + 6, wantAgain: 6},
		"NumbersExact":   {reason: "the last page is full", change: func(a *fakeAPI) { a.tokens = false }, size: 19, wantRequests: 1 + probes + 3, wantAgain: 3},
		"NumbersOnePage": {reason: "the default page holds not all, one of ours does", change: func(a *fakeAPI) { a.tokens = false }, size: 100, wantRequests: 1 + probes + 1, wantAgain: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fleet(n)
				if tc.change != nil {
					tc.change(api)
				}
				b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.HyperfleetAPI.PageSize = tc.size })
				b.run(t)
				synctest.Wait()
				wantCount(t, tc.reason+": events", b.broker.got(), n)
				wantCount(t, tc.reason+": requests", api.calls(), tc.wantRequests)
				b.wantMetric(t, n, "pending_resources")
				time.Sleep(5 * time.Second)
				synctest.Wait()
				wantCount(t, tc.reason+": requests after two rounds", api.calls(), tc.wantRequests+tc.wantAgain)
				b.wantMetric(t, n, "pending_resources")
				b.wantMetric(t, 0, "api_errors_total", "operation", "fetch_resources")
			})
		})
	}
}

func TestOddPages(t *testing.T) {
	cases := map[string]struct {
		reason     string
		body       func(url.Values) string
		wantEvents int
		wantErrors float64
		most       int // requests
	}{
		"Bare": {
			reason:     "an array is the whole list",
			body:       func(url.Values) string { return `[{"id":"a","generation":1},{"id":"b","generation":1}]` },
			wantEvents: 2, most: 1,
		},
		"NullItems": {reason: "an empty list", body: func(url.Values) string { return `{"items":null}` }, most: 1},
		"NumbersWithoutTotal": {
			reason: "a short page is the last",
			body: func(q url.Values) string {
				if q.Get("page") == "" {
					return `{"items":[{"id":"a","generation":1}],"total":4}`
				}
				if q.Get("page") == "1" {
					return `{"items":[{"id":"a","generation":1},{"id":"b","generation":1}]}`
				}
				return `{"items":[{"id":"c","generation":1}]}`
			},
			wantEvents: 3, most: 3 + probes,
		},
		"NumbersWithEmptyPage": {
			reason: "an empty page is the last, whatever the total says",
			body: func(q url.Values) string {
				if q.Get("page") == "" || q.Get("page") == "1" {
					return `{"items":[{"id":"a","generation":1},{"id":"b","generation":1}],"total":400}`
				}
				return `{"items":[],"total":400}`
			},
			wantEvents: 2, most: 3 + probes,
		},
		"SameToken": {
			reason:     "a token that leads to itself",
			body:       func(url.Values) string { return `{"items":[{"id":"a","generation":1}],"continue":"x"}` },
			wantEvents: 1, wantErrors: 1, most: 3,
		},
		"Circle": {
			reason: "tokens that lead in a circle",
			body: func(q url.Values) string {
				n := map[string]string{"": "0", "0": "1", "1": "2", "2": "3", "3": "4", "4": "1"}[q.Get("continue")]
				return `{"items":[{"id":"a` + n + `","generation":1}],"continue":"` + n + `"}`
			},
			wantEvents: 5, wantErrors: 1, most: 20,
		},
		"WrongGuess": {
			reason: "what looks like a token at the end of a page need not be one",
			body: func(q url.Values) string {
				switch q.Get("continue") {
				case "":
					return `{"continue":"n\u0065xt","items":[{"id":"a","generation":1,"spec":{"continue":"trap"}}]}`
				case "next":
					return `{"items":[{"id":"b","generation":1,"spec":{"continue":"trap"}}]}`
				}
				return `{"items":[{"id":"trap","generation":1}]}`
			},
			wantEvents: 2, most: 4,
		},
		"NumberIgnored": {
			reason: "a server that gives the same page for every number hides the rest of its list",
			body: func(url.Values) string {
				return `{"items":[{"id":"a","generation":1},{"id":"b","generation":1}],"total":1000000}`
			},
			wantEvents: 2, wantErrors: 1, most: 3 + probes,
		},
		"EscapedToken": {
			reason: "a token may need its escapes read",
			body: func(q url.Values) string {
				if q.Get("continue") == `q"/` {
					return `{"items":[{"id":"b","generation":1}]}`
				}
				return `{"items":[{"id":"a","generation":1}],"continue":"q\"\/"}`
			},
			wantEvents: 2, most: 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				api.body = tc.body
				b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.HyperfleetAPI.PageSize = 2 })
				b.run(t)
				synctest.Wait()
				wantCount(t, tc.reason+": events", b.broker.got(), tc.wantEvents)
				wantCount(t, tc.reason+": events of a page that is not in the list", b.broker.of("trap"), 0)
				b.wantMetric(t, tc.wantErrors, "api_errors_total", "operation", "fetch_resources")
				if n := len(api.calls()); n > tc.most {
					t.Errorf("%s: %d requests, want at most %d", tc.reason, n, tc.most)
				}
			})
		})
	}
}

// TestReadsAhead: the next page is fetched while this one waits for the
// broker, and no more than that.
func TestReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleet(50)
		b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.HyperfleetAPI.PageSize, c.Publish.Window = 10, 3 })
		b.broker.publish = func(context.Context, *cloudevent.Event) error { time.Sleep(time.Second); return nil }
		b.run(t)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		wantCount(t, "requests while the first page is worked on", api.calls(), 2)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		wantCount(t, "requests while the second page is worked on", api.calls(), 3)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		wantCount(t, "events", b.broker.got()[:50], 50)
	})
}

// TestTakenUpAgain: a list that breaks off at a page is taken up there, once.
func TestTakenUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleet(50)
		var fails atomic.Int32
		fails.Store(1)
		api.before = func(_ context.Context, q url.Values) error {
			if q.Get("continue") == "r00029" && fails.Add(-1) >= 0 {
				return errDown
			}
			return nil
		}
		b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.HyperfleetAPI.PageSize = 10 })
		b.run(t)
		synctest.Wait()
		wantCount(t, "events of the first part", b.broker.got(), 30)
		wantCount(t, "error names the page", b.log.lines(`list clusters: read the page at \"r00029\": it is down`), 1)
		b.wantMetric(t, 0, "pending_resources")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		wantCount(t, "events of both", b.broker.got(), 50)
		wantCount(t, "requests", api.calls(), 4+2)
		b.wantMetric(t, 50, "pending_resources")
		b.wantMetric(t, 60+5, "oldest_unreconciled_generation_seconds")

		fails.Store(2) // twice at the same page: begin anew
		time.Sleep(15 * time.Second)
		synctest.Wait()
		wantCount(t, "requests", api.calls(), 6+4+1+5)
		b.wantMetric(t, 3, "api_errors_total", "operation", "fetch_resources")
		b.wantMetric(t, 50, "pending_resources")
	})
}

// TestBrokenMidPage: a page that breaks off in its middle is read again whole;
// what stood before the break is counted once.
func TestBrokenMidPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		broken := true
		api.body = func(q url.Values) string {
			if q.Get("continue") == "" {
				return `{"items":[{"id":"a","generation":1},{"id":"b","generation":1}],"continue":"b"}`
			}
			if broken {
				broken = false
				return `{"items":[{"id":"c","generation":1},{"id":"d","gener`
			}
			return `{"items":[{"id":"c","generation":1},{"id":"d","generation":1}]}`
		}
		b := newFixture(t, api)
		b.run(t)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		wantCount(t, "requests", api.calls(), 3)
		wantCount(t, "events", b.broker.got(), 4)
		b.wantMetric(t, 4, "pending_resources")
	})
}

// TestTakenUpAgainByNumber: the same as with tokens.
func TestTakenUpAgainByNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleet(50)
		api.tokens = false
		fails := 1
		api.before = func(_ context.Context, q url.Values) error {
			if q.Get("page") == "4" && fails > 0 {
				fails--
				return errDown
			}
			return nil
		}
		b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.HyperfleetAPI.PageSize = 10 })
		b.run(t)
		synctest.Wait()
		wantCount(t, "requests", api.calls(), 1+probes+4)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		wantCount(t, "requests with the rest", api.calls(), 5+probes+2)
		wantCount(t, "events", b.broker.got(), 50)
		b.wantMetric(t, 50, "pending_resources")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		wantCount(t, "requests with the next round", api.calls(), 7+probes+5)
		b.wantMetric(t, 50, "pending_resources")
	})
}

// TestDrift: a page that shifts while the list is read shows a resource twice;
// it is published once, also if publishing it failed.
func TestDrift(t *testing.T) {
	for name, failing := range map[string]error{"published": nil, "failed": errDown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				api.body = func(q url.Values) string {
					switch q.Get("page") {
					case "":
						return `{"items":[],"total":3}`
					case "1":
						return `{"items":[{"id":"a","generation":1},{"id":"b","generation":1}],"total":3}`
					}
					return `{"items":[{"id":"b","generation":2},{"id":"c","generation":1}],"total":4}`
				}
				b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.HyperfleetAPI.PageSize, c.Publish.Attempts = 2, 1 })
				var tried atomic.Int32
				b.broker.publish = func(_ context.Context, e *cloudevent.Event) error {
					if e.Subject == "b" {
						tried.Add(1)
						return failing
					}
					return nil
				}
				b.run(t)
				synctest.Wait()
				if n := tried.Load(); n != 1 {
					t.Errorf("tried %d times in a round", n)
				}
				b.wantMetric(t, 3, "pending_resources")
				b.wantMetric(t, 1, "duplicate_resources_total")
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if n := tried.Load(); n != 2 {
					t.Errorf("tried %d times in two rounds", n)
				}
			})
		})
	}
}

// TestLargeFleet goes through more resources than any buffer holds.
func TestLargeFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleet(5000)
		b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.MemoryLimit = 1000 })
		b.broker.publish = func(context.Context, *cloudevent.Event) error { time.Sleep(time.Millisecond); return nil }
		b.run(t)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		wantCount(t, "events", b.broker.got()[:5000], 5000)
		seen := map[string]bool{}
		for _, e := range b.broker.got() {
			seen[e.Subject] = true
		}
		if len(seen) != 5000 {
			t.Errorf("%d resources", len(seen))
		}
		if n := b.metric(t, "published_cache_entries"); n > 1000 {
			t.Errorf("%v entries", n)
		}
		if !strings.Contains(b.log.lines("poll completed")[0], "published=5000") {
			t.Error(b.log.lines("poll completed")[0])
		}
	})
}
