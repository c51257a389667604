package allinone_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/allinone"
)

// newClient gives a client whose every request h answers, without a network.
func newClient(t *testing.T, h http.HandlerFunc) *fleetclient.Client {
	t.Helper()
	c, err := fleetclient.New(fleetclient.Config{
		Endpoint: "http://fleet", MaxAttempts: 1, WrapTransport: func(http.RoundTripper) http.RoundTripper { return transport(h) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type transport http.HandlerFunc

// RoundTrip lets the handler answer.
func (h transport) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	rec.Header().Set("Content-Type", "application/json")
	h(rec, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return rec.Result(), nil
}

func newResource(name string, phase v1.Phase, labels map[string]string) v1.Resource {
	return v1.Resource{ID: "id-" + name, Name: name, Labels: labels, Status: v1.Status{Phase: phase}}
}

// serveList answers with resources for a collection, and nothing for others.
func serveList(collection string, items ...v1.Resource) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		page := v1.List{}
		if strings.HasSuffix(r.URL.Path, "/"+collection) {
			page.Items = items
		}
		_ = json.NewEncoder(w).Encode(page)
	}
}

func TestOnlyTheDemoFleetIsWaitedFor(t *testing.T) {
	ofDemo := map[string]string{"demo": "true"}
	errTimeout := errors.New("not ready")
	cases := map[string]struct {
		reason string
		fleet  []v1.Resource
		want   error
	}{
		"Ready":   {"all of it is Ready", []v1.Resource{newResource("a", v1.PhaseReady, ofDemo), newResource("b", v1.PhaseReady, ofDemo)}, nil},
		"Foreign": {"what somebody else made does not hold it up", []v1.Resource{newResource("a", v1.PhaseReady, ofDemo), newResource("b", v1.PhaseReady, ofDemo), newResource("c", v1.PhasePending, nil)}, nil},
		"Few":     {"what somebody else made does not stand for what is missing", []v1.Resource{newResource("a", v1.PhaseReady, ofDemo), newResource("c", v1.PhaseReady, nil)}, errTimeout},
		"Unready": {"one is not", []v1.Resource{newResource("a", v1.PhaseReady, ofDemo), newResource("b", v1.PhasePending, ofDemo)}, errTimeout},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errTimeout)
				defer cancel()
				w := allinone.NewFleetWatch(newClient(t, serveList(v1.CollectionClusters, tc.fleet...)), false, nil)
				go func() { _ = w.Run(ctx) }()
				if got := w.WaitDemoReady(ctx, 2); !errors.Is(got, tc.want) {
					t.Errorf("%s: WaitDemoReady() = %v, want %v", tc.reason, got, tc.want)
				}
			})
		})
	}
}

func TestTheEndOfAWatchIsNoNews(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := allinone.NewFleetWatch(newClient(t, func(http.ResponseWriter, *http.Request) { cancel() }), false, nil)
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got := w.Snapshot().Notice; got != "" {
		t.Errorf("a look that was cut short is told as %q", got)
	}
}

func TestCreateGoesOnWhereItWasInterrupted(t *testing.T) {
	var posted []string
	api := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			serveList(v1.CollectionClusters, newResource("us-east-01", v1.PhasePending, nil))(w, r)
		case strings.HasSuffix(r.URL.Path, "/clusters"):
			w.WriteHeader(http.StatusConflict)
		default:
			posted = append(posted, strings.TrimPrefix(r.URL.Path, v1.BasePath))
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(v1.Resource{ID: "x"})
		}
	})
	if err := allinone.CreateDemoFleet(t.Context(), api, allinone.DemoFleet{Clusters: 1}); err != nil {
		t.Fatal(err)
	}
	want := []string{"/clusters/id-us-east-01/nodepools", "/clusters/id-us-east-01/nodepools"}
	if diff := cmp.Diff(want, posted); diff != "" {
		t.Errorf("a cluster that is there without its node pools gets them (-want +got):\n%s", diff)
	}
}
