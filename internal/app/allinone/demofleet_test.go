package allinone_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/allinone"
)

// fakeAPI keeps resources in memory, and returns errors on request.
type fakeAPI struct {
	mu     sync.Mutex
	byPath map[string][]v1.Resource // the collection's path below v1.BasePath
	ids    int
	status int // what everything is answered with, if not 0
	asked  int

	changes []v1.ChangeEvent
}

func newAPI(t *testing.T) (*fakeAPI, *fleetclient.Client) {
	t.Helper()
	f := &fakeAPI{byPath: map[string][]v1.Resource{}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	c, err := fleetclient.New(fleetclient.Config{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return f, c
}

// ServeHTTP serves POST on and GET of collections.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	path := strings.TrimPrefix(r.URL.Path, v1.BasePath+"/")
	status, body := f.handleRequest(r, path)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (f *fakeAPI) handleRequest(r *http.Request, path string) (status int, body any) {
	if f.status != 0 {
		return f.status, v1.Problem{Title: "as told", Status: f.status}
	}
	if r.URL.Path == v1.ChangesPath {
		return http.StatusOK, v1.ChangeEventList{Items: f.changes}
	}
	if r.Method == http.MethodGet {
		list := v1.List{Items: []v1.Resource{}}
		for _, of := range slices.Sorted(maps.Keys(f.byPath)) {
			if of == path || strings.HasSuffix(of, "/"+path) {
				list.Items = append(list.Items, f.byPath[of]...)
			}
		}
		return http.StatusOK, list
	}
	var in v1.CreateRequest
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return http.StatusBadRequest, v1.Problem{Title: err.Error()}
	}
	for _, there := range f.byPath[path] {
		if there.Name == in.Name {
			return http.StatusConflict, v1.Problem{Title: "it is there"}
		}
	}
	f.ids++
	made := v1.Resource{ID: fmt.Sprintf("id-%d", f.ids), Kind: in.Kind, Name: in.Name, Labels: in.Labels, Spec: in.Spec, Status: v1.Status{Phase: v1.PhasePending}}
	if parent, _, nested := strings.Cut(strings.TrimPrefix(path, "clusters/"), "/nodepools"); nested {
		made.OwnerResource = &v1.Reference{ID: parent, Kind: v1.KindCluster}
	}
	f.byPath[path] = append(f.byPath[path], made)
	return http.StatusCreated, made
}

func (f *fakeAPI) withLock(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// listNames are all resources, by the path of their collection.
func (f *fakeAPI) listNames() map[string][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string][]string{}
	for path, list := range f.byPath {
		for _, r := range list {
			out[path] = append(out[path], r.Name)
		}
	}
	return out
}

// setAllPhases gives every resource a phase.
func (f *fakeAPI) setAllPhases(p v1.Phase) {
	f.withLock(func() {
		for _, list := range f.byPath {
			for i := range list {
				list[i].Status.Phase = p
			}
		}
	})
}

func TestCreateDemoFleet(t *testing.T) {
	t.Parallel()
	api, client := newAPI(t)
	cfg := allinone.DemoFleet{Clusters: 4}
	for range 2 { // what is there is left as it is
		if err := allinone.CreateDemoFleet(t.Context(), client, cfg); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][]string{
		"clusters":                 {"us-east-01", "us-west-02", "eu-west-03", "us-east-04"},
		"clusters/id-1/nodepools":  {"system", "workers"},
		"clusters/id-4/nodepools":  {"system", "workers"},
		"clusters/id-7/nodepools":  {"system", "workers"},
		"clusters/id-10/nodepools": {"system", "workers"},
	}
	if diff := cmp.Diff(want, api.listNames()); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	if cfg.Size() != 12 {
		t.Errorf("size %d, want 12", cfg.Size())
	}
	first := api.byPath["clusters"][0]
	if first.Kind != v1.KindCluster || first.Labels["region"] != "us-east" || first.Labels["environment"] != "production" || first.Labels["demo"] != "true" {
		t.Errorf("the first cluster is %+v", first)
	}
}

// TestCreateDemoFleetWaits holds that an API that is not there yet is waited for, and
// that one that refuses is not asked again.
func TestCreateDemoFleetWaits(t *testing.T) {
	t.Parallel()
	api, client := newAPI(t)
	api.withLock(func() { api.status = http.StatusServiceUnavailable })
	done := make(chan error, 1)
	go func() { done <- allinone.CreateDemoFleet(t.Context(), client, allinone.DemoFleet{Clusters: 1}) }()
	eventually(t, func() error {
		api.mu.Lock()
		defer api.mu.Unlock()
		if api.asked < 2 {
			return fmt.Errorf("asked %d times", api.asked)
		}
		return nil
	})
	api.withLock(func() { api.status = 0 })
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	api.withLock(func() { api.status, api.asked = http.StatusForbidden, 0 })
	err := allinone.CreateDemoFleet(t.Context(), client, allinone.DemoFleet{Clusters: 1})
	if e, ok := errors.AsType[*fleetclient.Error](err); !ok || e.Status != http.StatusForbidden || !strings.Contains(err.Error(), `create demo clusters "us-east-01"`) {
		t.Errorf("refused: got %v, want the refusal and what it was about", err)
	}
	if api.asked != 1 {
		t.Errorf("asked %d times although it was refused, want 1", api.asked)
	}

	api.withLock(func() { api.status = http.StatusServiceUnavailable })
	ctx, cancel := context.WithCancelCause(t.Context())
	boom := errors.New("enough")
	cancel(boom)
	if err := allinone.CreateDemoFleet(ctx, client, allinone.DemoFleet{Clusters: 1}); !errors.Is(err, boom) {
		t.Errorf("told to stop: got %v, want %v", err, boom)
	}
}

func TestFleetWatch(t *testing.T) {
	t.Parallel()
	api, client := newAPI(t)
	cfg := allinone.DemoFleet{Clusters: 2}
	if err := allinone.CreateDemoFleet(t.Context(), client, cfg); err != nil {
		t.Fatal(err)
	}
	adapters := []allinone.AdapterState{{Name: "dns", Paused: true}}
	w := allinone.NewFleetWatch(client, false, func() []allinone.AdapterState { return adapters })
	w.RecordPublished("id-1", "before the first look", time.Now())
	if got := w.Snapshot().Recent[0].Resource; got != "new resource" {
		t.Errorf("an event of a resource that was not seen yet is of %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer work.Wait()
	defer cancel()
	eventually(t, func() error {
		if got := w.Snapshot().Recent[0].Resource; got != "cluster/us-east-01" {
			return fmt.Errorf("once it was seen the event is of %q", got)
		}
		return nil
	})

	// Nothing is ready: the wait ends with its context, and names its cause.
	boom := errors.New("too late")
	short, stop := context.WithTimeoutCause(t.Context(), time.Millisecond, boom)
	defer stop()
	if err := w.WaitDemoReady(short, cfg.Size()); !errors.Is(err, boom) {
		t.Errorf("nothing is ready: got %v, want %v", err, boom)
	}
	eventually(t, func() error { return wantPhases(w.Snapshot(), v1.PhasePending) })
	if s := w.Snapshot(); len(s.Unready) != 6 || s.Unready[0].Phase != v1.PhasePending || !s.Adapters[0].Paused {
		t.Errorf("the snapshot is %+v", s)
	}

	// Events are shown by name, the last first, and bounded.
	for i := range 40 {
		w.RecordPublished("id-1", fmt.Sprintf("reason %d", i), time.Now())
	}
	w.RecordPublished("id-2", "of a pool", time.Now())
	w.RecordPublished("unheard of", "not seen yet", time.Now())
	s := w.Snapshot()
	if s.Published != 43 || len(s.Recent) != 16 || s.Recent[0].Resource != "new resource" || s.Recent[1].Resource != "nodepool/us-east-01/system" || s.Recent[2].Resource != "cluster/us-east-01" || s.Recent[2].Reason != "reason 39" {
		t.Errorf("%d events, the last are %+v", s.Published, s.Recent[:3])
	}

	// What was done is shown as the timeline has it, the last first.
	when := time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)
	api.withLock(func() {
		api.changes = []v1.ChangeEvent{
			{Action: "shoot-failed", Timestamp: when, Summary: "Gardener failed", Outcome: "failed"},
			{Action: "something-new", Timestamp: when.Add(-time.Second), Outcome: "succeeded"},
		}
	})
	want := []allinone.RecentChange{{Time: when, Summary: "Gardener failed", Failed: true}, {Time: when.Add(-time.Second), Summary: "something-new"}}
	eventually(t, func() error {
		if diff := cmp.Diff(want, w.Snapshot().Changes); diff != "" {
			return fmt.Errorf("changes (-want +got):\n%s", diff)
		}
		return nil
	})

	// While the API is away the last state stays, with the reason.
	api.withLock(func() { api.status = http.StatusServiceUnavailable })
	eventually(t, func() error {
		if n := w.Snapshot().Notice; !strings.Contains(n, "503") {
			return fmt.Errorf("notice %q", n)
		}
		return nil
	})
	if err := wantPhases(w.Snapshot(), v1.PhasePending); err != nil {
		t.Error(err)
	}
	api.withLock(func() { api.status = 0 })

	// A fleet that is smaller than it will be is not ready yet.
	api.setAllPhases(v1.PhaseReady)
	if err := w.WaitDemoReady(t.Context(), cfg.Size()); err != nil {
		t.Error(err)
	}
	more, stopMore := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, boom)
	defer stopMore()
	if err := w.WaitDemoReady(more, cfg.Size()+1); !errors.Is(err, boom) {
		t.Errorf("one is missing: got %v, want %v", err, boom)
	}
	eventually(t, func() error {
		if n := w.Snapshot().Notice; n != "" {
			return fmt.Errorf("notice %q", n)
		}
		return wantPhases(w.Snapshot(), v1.PhaseReady)
	})
}

// wantPhases checks that all resources are in a phase.
func wantPhases(s allinone.FleetSnapshot, phase v1.Phase) error {
	want := []allinone.ResourceGroup{
		{Title: "Clusters", Phases: map[v1.Phase]int{phase: 2}},
		{Title: "Node pools", Phases: map[v1.Phase]int{phase: 4}},
	}
	if diff := cmp.Diff(want, s.Groups); diff != "" {
		return fmt.Errorf("groups (-want +got):\n%s", diff)
	}
	return nil
}
