package hyperfleettest_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	api "github.com/fleetloop/fleetloop/internal/sentinel/hyperfleettest"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// poll is the default interval.
const poll = 5 * time.Second

// A broker confirms everything.
type broker struct {
	mu     sync.Mutex
	events []event
}

type event struct {
	at time.Time
	id string
}

func (b *broker) Publish(_ context.Context, e *cloudevent.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, event{time.Now(), e.Subject})
	return nil
}

func (*broker) InFlight() int { return 0 }
func (*broker) Ready() error  { return nil }

// taken returns and clears the ids of the events so far, in order.
func (b *broker) taken() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := []string{}
	for _, e := range b.events {
		ids = append(ids, e.id)
	}
	b.events = nil
	return ids
}

// inProcess is a transport that calls a handler directly, so that a test can run in a synctest
// bubble.
type inProcess struct{ http.Handler }

func (h inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// A watched API has a sentinel that polls it.
type watched struct {
	*broker
	reg *prometheus.Registry
	log *bytes.Buffer
}

// watch runs a sentinel until the test ends. With an empty endpoint it calls h in the process.
func watch(t *testing.T, h http.Handler, endpoint string, change func(*sentinel.Config)) *watched {
	t.Helper()
	client, err := fleetclient.New(fleetclient.Config{
		Endpoint: cmp.Or(endpoint, "http://api"),
		WrapTransport: func(rt http.RoundTripper) http.RoundTripper {
			if endpoint != "" {
				return rt
			}
			return inProcess{h}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{broker: &broker{}, reg: prometheus.NewRegistry(), log: &bytes.Buffer{}}
	cfg := sentinel.Config{ResourceType: "clusters"}
	if change != nil {
		change(&cfg)
	}
	s, err := sentinel.New(cfg, sentinel.Deps{
		API: client.Raw(), Publisher: w.broker, BrokerType: "nats", Registerer: w.reg, Log: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		client.CloseIdle()
	})
	return w
}

// metric returns the value of a gauge or counter.
func (w *watched) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "hyperfleet_sentinel_"+name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func (w *watched) want(t *testing.T, when string, ids ...string) {
	t.Helper()
	synctest.Wait()
	if got := w.taken(); !slices.Equal(got, ids) {
		t.Errorf("%s: events about %q, want %q\n%s", when, got, ids, w.log)
	}
}

// versions returns the versions of the API, and their configuration.
func versions() map[string]struct {
	cfg     api.Config
	flavour source.Flavour
} {
	all := map[string]struct {
		cfg     api.Config
		flavour source.Flavour
	}{}
	for era, name := range map[api.Era]string{api.Today: "today", api.Third: "third", api.Second: "second", api.Earliest: "earliest"} {
		for _, flavour := range []source.Flavour{source.FlavourAuto, source.FlavourHyperfleet} {
			all[name+"/"+string(flavour)] = struct {
				cfg     api.Config
				flavour source.Flavour
			}{api.Config{Era: era, OldParameters: era != api.Today}, flavour}
		}
	}
	return all
}

// TestSentinelFollows: whatever the version, a resource that was created,
// patched or deleted is announced by the next poll, one that is not answered
// is announced again at its age and no sooner, and one that was answered is
// left alone.
func TestSentinelFollows(t *testing.T) {
	for name, version := range versions() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := api.New(version.cfg)
				answer := func(id string, generation int64) {
					s.ReportAllConditionsTrue("clusters", id, "validation", generation)
					s.ReportAllConditionsTrue("clusters", id, "dns", generation)
				}
				for i := range 30 {
					answer(s.CreateResource("clusters", fmt.Sprintf("bystander-%d", i)), 1)
				}
				w := watch(t, s, "", func(c *sentinel.Config) { c.HyperfleetAPI.Flavour = version.flavour })
				w.want(t, "nothing to do")

				time.Sleep(time.Second)
				id := s.CreateResource("clusters", "one")
				w.want(t, "before the next poll")
				time.Sleep(poll)
				w.want(t, "created", id)
				time.Sleep(poll)
				w.want(t, "not answered, too soon")
				time.Sleep(poll)
				w.want(t, "not answered", id)
				for range 6 {
					time.Sleep(2 * poll)
					w.want(t, "every ten seconds", id)
				}
				answer(id, 1)
				time.Sleep(10 * poll)
				w.want(t, "answered")

				s.PatchSpec("clusters", id, `{"x":1}`)
				time.Sleep(poll)
				w.want(t, "patched", id)
				answer(id, 2)
				time.Sleep(10 * poll)
				w.want(t, "answered")

				for i := range 10 {
					s.PatchSpec("clusters", id, fmt.Sprintf(`{"y":%d}`, i))
					time.Sleep(poll)
					w.want(t, "patched before every poll", id)
				}
				answer(id, 12)
				time.Sleep(10 * poll)
				w.want(t, "answered")

				s.RequestDeletion("clusters", id)
				time.Sleep(poll)
				w.want(t, "deleted", id)
				answer(id, 13)
				time.Sleep(10 * poll)
				w.want(t, "gone")
				if got := w.metric(t, "pending_resources"); got != 30 {
					t.Errorf("%v resources", got)
				}

				if w.metric(t, "api_errors_total") != 0 {
					t.Errorf("errors of the API:\n%s", w.log)
				}
			})
		})
	}
}

// TestSentinelReminds checks that a ready resource is announced at its age, and once.
func TestSentinelReminds(t *testing.T) {
	for name, version := range versions() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := api.New(version.cfg)
				id := s.CreateResource("clusters", "one")
				s.ReportAllConditionsTrue("clusters", id, "validation", 1)
				s.ReportAllConditionsTrue("clusters", id, "dns", 1)
				w := watch(t, s, "", func(c *sentinel.Config) {
					c.HyperfleetAPI.Flavour, c.PollInterval = version.flavour, time.Minute
				})
				time.Sleep(29 * time.Minute)
				w.want(t, "young")
				time.Sleep(2 * time.Minute)
				w.want(t, "of age", id)
				time.Sleep(28 * time.Minute)
				w.want(t, "announced")
				time.Sleep(2 * time.Minute)
				w.want(t, "of age again", id)
			})
		})
	}
}

// TestSentinelLeavesAlone checks that a kind without adapters is announced at the age of ready
// resources, and not in every poll.
func TestSentinelLeavesAlone(t *testing.T) {
	for _, era := range []api.Era{api.Today, api.Third} {
		synctest.Test(t, func(t *testing.T) {
			s := api.New(api.Config{Era: era, Kinds: []api.Kind{{Name: "Cluster", Plural: "clusters"}}})
			id := s.CreateResource("clusters", "one")
			w := watch(t, s, "", nil)
			time.Sleep(29 * time.Minute)
			w.want(t, "young")
			time.Sleep(2 * time.Minute)
			w.want(t, "of age", id)
			time.Sleep(28 * time.Minute)
			w.want(t, "announced")
			time.Sleep(2 * time.Minute)
			w.want(t, "of age again", id)
		})
	}
}

// TestSentinelSelectsNothing: a small fleet of the public API, of which no resource
// has labels, is not taken for selected although it was asked to select.
func TestSentinelSelectsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := api.New(api.Config{})
		s.CreateResource("clusters", "one")
		s.CreateResource("clusters", "two")
		w := watch(t, s, "", func(c *sentinel.Config) { c.ResourceSelector = []selector.Pair{{Label: "region", Value: "eu"}} })
		time.Sleep(3 * poll)
		w.want(t, "not selected")
		id := s.CreateResource("clusters", "three", "region", "eu")
		time.Sleep(poll)
		w.want(t, "selected", id)
	})
}

// TestSentinelCounts: every resource is seen once per round, whatever the
// server knows and however its pages drift.
func TestSentinelCounts(t *testing.T) {
	const n = 210
	cases := map[string]struct {
		reason   string
		cfg      api.Config
		selector []selector.Pair
		want     int
		repeats  bool // the server's pages can not be had without
	}{
		"All":      {reason: "three pages by ids", cfg: api.Config{Shuffle: true}, want: n},
		"Selected": {reason: "the server selects", cfg: api.Config{Shuffle: true}, selector: []selector.Pair{{Label: "region", Value: "eu"}}, want: n / 2},
		"Hyphen":   {reason: "we select, for the server has no words for it", cfg: api.Config{Shuffle: true}, selector: []selector.Pair{{Label: "cluster-type", Value: "b"}}, want: n / 2},
		"NoSearch": {reason: "pages by number, sorted", cfg: api.Config{Shuffle: true, IgnoreSearch: true}, selector: []selector.Pair{{Label: "region", Value: "eu"}}, want: n / 2},
		"Old":      {reason: "pages by number, as they come", cfg: api.Config{OldParameters: true}, want: n},
		"Drift":    {reason: "nothing helps against pages that drift; what they hold is announced, and once", cfg: api.Config{Shuffle: true, OldParameters: true}, want: n, repeats: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := api.New(tc.cfg)
				for i := range n {
					s.CreateResource("clusters", fmt.Sprintf("c-%d", i), "region", []string{"us-east", "eu"}[i%2], "cluster-type", []string{"a", "b"}[i%2])
				}
				w := watch(t, s, "", func(c *sentinel.Config) { c.ResourceSelector = tc.selector })
				synctest.Wait()
				first := w.taken()
				once := slices.Compact(slices.Sorted(slices.Values(first)))
				if len(once) != len(first) || len(once) != tc.want && !tc.repeats {
					t.Errorf("%s: %d events about %d resources, want %d", tc.reason, len(first), len(once), tc.want)
				}
				for range 3 {
					time.Sleep(poll)
					synctest.Wait()
					if got := w.metric(t, "pending_resources"); got != float64(tc.want) && !tc.repeats {
						t.Errorf("%s: %v resources, want %d", tc.reason, got, tc.want)
					}
				}
				if got := w.metric(t, "duplicate_resources_total"); got != 0 && !tc.repeats {
					t.Errorf("%s: %v duplicates", tc.reason, got)
				}
				time.Sleep(4 * poll) // what drifted out of one round is in another
				synctest.Wait()
				all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(first, w.taken()))))
				if len(all) != tc.want {
					t.Errorf("%s: %d resources announced in the end, want %d", tc.reason, len(all), tc.want)
				}
			})
		})
	}
}

// TestSentinelOverTheWire is the same in earnest: a server that listens, and a
// clock that runs.
func TestSentinelOverTheWire(t *testing.T) {
	s := api.New(api.Config{})
	for i := range 150 {
		s.CreateResource("clusters", fmt.Sprintf("c-%d", i), "region", []string{"us-east", "eu"}[i%2])
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	w := watch(t, nil, server.URL, func(c *sentinel.Config) {
		c.PollInterval = 20 * time.Millisecond
		c.ResourceSelector = []selector.Pair{{Label: "region", Value: "eu"}}
	})
	wantSoon := func(what string, want int) {
		t.Helper()
		got := map[string]bool{}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		late := time.NewTimer(20 * time.Second)
		defer late.Stop()
		for len(got) < want {
			for _, id := range w.taken() {
				got[id] = true
			}
			select {
			case <-tick.C:
			case <-late.C:
				t.Fatalf("%s: %d announced, want %d", what, len(got), want)
			}
		}
		if len(got) > want {
			t.Errorf("%s: %d announced, want %d", what, len(got), want)
		}
	}
	wantSoon("all that are selected", 75)
	id := s.CreateResource("clusters", "late", "region", "eu")
	wantSoon("created", 1)
	s.PatchSpec("clusters", id, `{"x":1}`)
	wantSoon("patched", 1)
	requests := strings.Join(s.ListRequests(), "\n")
	if !strings.Contains(requests, "search=labels.region") || !strings.Contains(requests, "order=id") {
		t.Errorf("asked\n%s", requests)
	}
}
