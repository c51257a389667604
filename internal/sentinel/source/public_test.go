package source_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/sentinel/hyperfleettest"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// TestPublicAPI checks all versions of the public API, with and without a configured flavour. Each
// walk returns every matching resource exactly once.
func TestPublicAPI(t *testing.T) {
	const eu, all = 55, 110 // every second one is in region eu
	cases := map[string]struct {
		reason   string
		cfg      hyperfleettest.Config
		selector string
		size     int
		probes   int    // requests before the first page, those of auto
		pages    int    // requests of each walk after that
		seen     int    // resources that the server sent
		with     string // what every page is asked with
		without  string
		log      string
	}{
		"All": {
			reason: "by ids, a hundred at a time, whatever was asked for",
			size:   500, probes: 1 + 2 + 1, pages: 2, seen: all, with: "order=id", without: "labels", log: "paging=ids",
		},
		"Selected": {
			reason:   "the server selects by its search language",
			selector: "region=eu", size: 50, probes: 1 + 5, pages: 2, seen: eu, with: "search=labels.region='eu'", without: "labels=", log: "paging=ids filter=\"search=labels.region='eu'\"",
		},
		"Set": {
			reason:   "also of several values",
			selector: "region in (eu,none)", size: 50, probes: 1 + 5, pages: 2, seen: eu, with: "search=labels.region in ['eu','none']", log: "paging=ids",
		},
		"HalfSaid": {
			reason:   "what it has no words for is left out, and left to us",
			selector: "region=eu,cluster-type!=x,!gone", size: 50, probes: 1 + 5, pages: 2, seen: eu, with: "search=labels.region='eu'", log: "paging=ids",
		},
		"Unsaid": {
			reason:   "all is read if nothing can be said",
			selector: "cluster-type=x", size: 100, probes: 1 + 3, pages: 2, seen: all, without: "labels", log: "level=WARN msg=\"api cannot filter by this selector",
		},
		"NotEqual": {
			reason:   "what has no such label is not unequal there, so it is not asked for",
			selector: "region!=us-east", size: 100, probes: 1 + 3, pages: 2, seen: all, without: "search=labels", log: "level=WARN",
		},
		"KnowsLabels": {
			reason:   "a server of the family that does",
			cfg:      hyperfleettest.Config{Labels: true},
			selector: "region=eu", size: 50, probes: 1 + 4, pages: 2, seen: eu, with: "labels=region=eu", log: "paging=ids filter=\"labels=region=eu\"",
		},
		"NoSearch": {
			reason:   "all pages by number, in the order of ids so that they do not drift",
			cfg:      hyperfleettest.Config{IgnoreSearch: true, Shuffle: true},
			selector: "region=eu", size: 100, probes: 1 + 4, pages: 2, seen: all, with: "order=id", without: "search", log: "level=WARN",
		},
		"NoOrder": {
			reason: "a server that does not sort can not be gone through by ids, and shows it by the first page",
			cfg:    hyperfleettest.Config{IgnoreOrder: true},
			size:   100, probes: 1 + 2 + 1, pages: 2, seen: all, with: "page=", without: "search", log: "api paging is inconsistent",
		},
		"OnesNoOrder": {
			reason: "pages of one are always in order",
			cfg:    hyperfleettest.Config{IgnoreOrder: true, MaxSize: 1},
			size:   1, probes: 1 + 2 + 1, pages: all, seen: all, with: "page=", without: "search", log: "api paging is inconsistent",
		},
		"Old": {
			reason: "the parameters of an older version",
			cfg:    hyperfleettest.Config{OldParameters: true},
			size:   100, probes: 1 + 2 + 1, pages: 2, seen: all, with: "pageSize=100", log: "api paging is inconsistent",
		},
		"Small": {
			reason: "a server that gives less than the public one",
			cfg:    hyperfleettest.Config{MaxSize: 30},
			size:   500, probes: 1 + 2 + 1, pages: 4, seen: all, with: "size=30", log: "paging=ids",
		},
	}
	for name, tc := range cases {
		for _, flavour := range []source.Flavour{source.FlavourAuto, source.FlavourHyperfleet} {
			t.Run(name+"/"+string(flavour), func(t *testing.T) {
				api := hyperfleettest.New(tc.cfg)
				var ids []string
				for i := range all {
					ids = append(ids, api.CreateResource("clusters", fmt.Sprintf("c-%04d", i), "region", []string{"us-east", "eu"}[i%2]))
				}
				if tc.seen == eu {
					for i := range eu {
						ids[i] = ids[2*i+1]
					}
					ids = ids[:eu]
				}
				var log bytes.Buffer
				w := newWalker(t, api, &log, source.WalkerConfig{PageSize: tc.size, Flavour: flavour, Selector: mustParse(t, tc.selector)})
				probes := tc.probes
				if flavour == source.FlavourHyperfleet {
					probes-- // the page that told that it was none of ours
				}
				for i, most := range []int{probes + tc.pages + 1, tc.pages, tc.pages} {
					api.ForgetRequests()
					var r pageReader
					if _, err := w.FetchResources(t.Context(), source.Place{}, r.read); err != nil {
						t.Fatal(err)
					}
					r.wantOnce(t, fmt.Sprintf("%s: walk %d", tc.reason, i), ids)
					calls := plain(t, api.ListRequests())
					if len(calls) > most {
						t.Errorf("%s: walk %d: %d requests, want at most %d:\n%s", tc.reason, i, len(calls), most, strings.Join(calls, "\n"))
					}
					for _, call := range calls {
						if i > 0 && (!strings.Contains(call, tc.with) || tc.without != "" && strings.Contains(call, tc.without)) {
							t.Errorf("%s: asked %s, want with %q and without %q", tc.reason, call, tc.with, tc.without)
						}
					}
				}
				if got := w.Flavour(); got != source.FlavourHyperfleet {
					t.Errorf("%s: flavour %s", tc.reason, got)
				}
				if !strings.Contains(log.String(), tc.log) || strings.Count(log.String(), "level=WARN") > 1 {
					t.Errorf("%s: logged\n%s", tc.reason, log.String())
				}
			})
		}
	}
}

// newWalker returns a walker with a real connection.
func newWalker(t *testing.T, api http.Handler, log *bytes.Buffer, cfg source.WalkerConfig) *source.Walker {
	t.Helper()
	client, err := fleetclient.New(fleetclient.Config{Endpoint: serve(t, api)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdle)
	cfg.Collection, cfg.Log = "clusters", slog.New(slog.NewTextHandler(log, nil))
	return source.NewWalker(cfg, client.Raw())
}

// plain returns requests in readable form.
func plain(t *testing.T, requests []string) []string {
	t.Helper()
	for i, r := range requests {
		text, err := url.QueryUnescape(r)
		if err != nil {
			t.Fatal(err)
		}
		requests[i] = text
	}
	return requests
}

// TestSmallCollections: what fits on a page needs no questions, and a
// collection may grow or vanish between two walks.
func TestSmallCollections(t *testing.T) {
	for _, flavour := range []source.Flavour{source.FlavourAuto, source.FlavourHyperfleet} {
		api := hyperfleettest.New(hyperfleettest.Config{})
		w := newWalker(t, api, new(bytes.Buffer), source.WalkerConfig{PageSize: 50, Flavour: flavour})
		var ids []string
		for _, n := range []int{0, 0, 1, 1, 2, 20, 21, 120, 121} {
			for len(ids) < n {
				ids = append(ids, api.CreateResource("clusters", "c-"+strconv.Itoa(len(ids))))
			}
			var r pageReader
			if _, err := w.FetchResources(t.Context(), source.Place{}, r.read); err != nil {
				t.Fatal(err)
			}
			r.wantOnce(t, fmt.Sprintf("%s: %d resources", flavour, n), ids)
		}
		for _, id := range ids {
			api.RemoveResource(id)
		}
		var r pageReader
		if _, err := w.FetchResources(t.Context(), source.Place{}, r.read); err != nil || len(r.seen) > 0 {
			t.Errorf("%s: saw %v, %v", flavour, r.seen, err)
		}
	}
}

// TestGrowsWhileListed checks that a permanent resource is listed, whatever other resources are
// created and deleted meanwhile.
func TestGrowsWhileListed(t *testing.T) {
	api := hyperfleettest.New(hyperfleettest.Config{})
	var ids []string
	for i := range 200 {
		ids = append(ids, api.CreateResource("clusters", "c-"+strconv.Itoa(i)))
	}
	n := 0
	more := func() { n++; api.CreateResource("clusters", "new-"+strconv.Itoa(n)) }
	w := newWalker(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		api.ServeHTTP(rw, r)
		more()
		api.RemoveResource(ids[0])
		ids = ids[1:]
	}), new(bytes.Buffer), source.WalkerConfig{PageSize: 20})
	for range 3 {
		var r pageReader
		if _, err := w.FetchResources(t.Context(), source.Place{}, r.read); err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, id := range r.seen {
			seen[id]++
		}
		for _, id := range ids {
			if seen[id] != 1 {
				t.Fatalf("%s was seen %d times", id, seen[id])
			}
		}
	}
}
