package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A stub plays a fleet API of another make: it answers as it is told and takes
// down what it was asked.
type stub struct {
	*httptest.Server

	mu     sync.Mutex
	asked  []asked
	answer http.HandlerFunc
}

type asked struct {
	method, uri, authorization string
	at                         time.Time
}

func newStub(t *testing.T, answer http.HandlerFunc) *stub {
	t.Helper()
	s := &stub{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, asked{r.Method, r.RequestURI, r.Header.Get("Authorization"), time.Now()})
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// answerWith changes the answer.
func (s *stub) answerWith(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *stub) requests() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]asked(nil), s.asked...)
}

// wantMore waits for n more requests and gives them.
func (s *stub) wantMore(t *testing.T, n int) []asked {
	t.Helper()
	before := len(s.requests())
	eventually(t, patience, func() error {
		if got := len(s.requests()) - before; got < n {
			return fmt.Errorf("%d more requests, want %d", got, n)
		}
		return nil
	})
	return s.requests()[before:]
}

// wantPace checks that requests come no faster than they should: on the whole,
// for each may arrive late.
func wantPace(t *testing.T, when string, requests []asked, interval time.Duration) {
	t.Helper()
	took := requests[len(requests)-1].at.Sub(requests[0].at)
	if least := interval * time.Duration(len(requests)-1) / 2; took < least {
		t.Errorf("%s: %d requests within %s, want one every %s", when, len(requests), took, interval)
	}
}

func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// TestRequests holds what the sentinel asks for, how often, and that no answer
// stops it: an error, a body that is none, silence. The list is in the form of
// the specification's own sample, in both spellings.
func TestRequests(t *testing.T) {
	t.Parallel()
	const interval = 300 * time.Millisecond
	api := newStub(t, text(http.StatusOK, `{"items":[]}`))
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t)})
	s := newSentinel(t, api.URL+"/", `
resource_type: clusters
poll_interval: 300ms
resource_selector:
  - label: region
    value: us-east
  - label: environment
    value: production
hyperfleet_api: {endpoint: API, timeout: 1s, token: from the file}
`, mergeEnv(rabbitEnv(rabbit(t).Addr(), exchangeOf(t)), map[string]string{"HYPERFLEET_API_TOKEN": "from-the-environment"}))
	requests := api.wantMore(t, 4)
	want := asked{http.MethodGet, v1.BasePath + "/clusters?labels=environment%3Dproduction%2Cregion%3Dus-east&limit=500", "Bearer from-the-environment", time.Time{}}
	for i, r := range requests {
		if r.at = (time.Time{}); r != want {
			t.Errorf("request %d is %+v, want %+v", i, r, want)
		}
	}
	wantPace(t, "answered", requests, interval)

	for name, answer := range map[string]http.HandlerFunc{
		"500":      text(http.StatusInternalServerError, `{"title":"no"}`),
		"403":      text(http.StatusForbidden, `{"title":"no"}`),
		"NotJSON":  text(http.StatusOK, `{`),
		"NoList":   text(http.StatusOK, `"hello"`),
		"Nothing":  text(http.StatusOK, ""),
		"HalfList": text(http.StatusOK, `{"items":[{"id":"cls-1","generation":1}`),
		"Hangs":    func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		before := s.metrics(t).sum("hyperfleet_sentinel_api_errors_total", "operation", "fetch_resources")
		api.answerWith(answer)
		wantPace(t, name, api.wantMore(t, 3), interval)
		wantMetric(t, s, "hyperfleet_sentinel_api_errors_total", before+2, "operation", "fetch_resources")
	}
	s.wantUnready(t, "[-]sentinel failed: ")
	api.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	api.wantMore(t, 1) // it may be of before
	wantPace(t, "told to come again after 1s", api.wantMore(t, 3), 1900*time.Millisecond)

	now := time.Now().UTC().Format(time.RFC3339)
	api.answerWith(text(http.StatusOK, `{"items":[`+
		`{"id":"cls-123","generation":2,"labels":{"region":"us-east","environment":"production"},"status":{"phase":"Provisioning","observed_generation":1,"last_transition_time":"2025-10-21T10:00:00Z","last_updated_time":"`+now+`"}},`+
		`{"id":"cls-124","generation":2,"metadata":{"labels":{"region":"us-east","environment":"production"}},"status":{"phase":"Ready","observedGeneration":1,"lastTransitionTime":"2025-10-21T10:00:00Z","lastUpdatedTime":"`+now+`"}},`+
		`{"id":"cls-125","generation":1,"labels":{"region":"us-east","environment":"production"}},`+
		`{"id":"cls-126","generation":1,"labels":{"region":"us-east","environment":"production"},"status":{"phase":"Ready","observed_generation":2,"last_updated_time":"`+now+`"}},`+
		`{"id":"cls-127","generation":1,"labels":{"region":"us-west","environment":"production"}},`+
		`{"generation":1,"labels":{"region":"us-east","environment":"production"}}`+
		`]}`))
	s.wantReady(t)
	for _, id := range []string{"cls-123", "cls-124", "cls-125"} {
		if e := q.wantEvents(t, id, 1, patience)[0]; e.str("reason") != reasonGeneration {
			t.Errorf("%s: reason %q, want %q", id, e.str("reason"), reasonGeneration)
		}
	}
	s.wantLine(t, "observed_generation ahead of generation - potential API issue", map[string]any{"level": "warn", "resource_id": "cls-126"})
	wantMetric(t, s, "hyperfleet_sentinel_selector_mismatches_total", 2)
	if n := len(q.all()); n != 3 {
		t.Errorf("%d events, want 3: one is ahead, one of another shard, one without an id", n)
	}
}
