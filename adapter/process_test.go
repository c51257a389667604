package adapter

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// asAdapter makes the test binary an adapter that never finishes its work, for a test that kills it.
const asAdapter = "FLEETLOOP_TEST_STUCK_ADAPTER"

// runAsAdapter runs the adapter if the environment asks for it.
func runAsAdapter() bool {
	if _, ok := settings.OSEnv(asAdapter); !ok {
		return false
	}
	a, err := New(Config{Name: "dns"}, ReconcilerFunc(func(ctx context.Context, _ Resource) (Report, error) {
		<-ctx.Done()
		return Report{}, ctx.Err()
	}), Deps{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err == nil {
		err = a.Run(context.Background())
	}
	panic(err)
}

// startProcess runs the stuck adapter. kill ends it without warning.
func startProcess(t *testing.T, env map[string]string) (kill func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), exe)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), asAdapter+"=1")
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
	})
	t.Cleanup(kill)
	return kill
}

// A httpFleet is a fleet API over HTTP that has every cluster.
type httpFleet struct {
	*httptest.Server

	mu      sync.Mutex
	read    []string // ids of the resources, as they were read
	reports map[string][]v1.Report
	parents []string // traceparent of each report
}

func newHTTPFleet(t *testing.T) *httpFleet {
	t.Helper()
	f := &httpFleet{reports: map[string][]v1.Report{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+v1.BasePath+"/clusters/{id}", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.read = append(f.read, r.PathValue("id"))
		f.mu.Unlock()
		answer(w, http.StatusOK, v1.Resource{ID: r.PathValue("id"), Generation: 1, Spec: json.RawMessage("{}")})
	})
	mux.HandleFunc("GET "+v1.BasePath+"/clusters/{id}/statuses", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, v1.AdapterStatusList{Items: []v1.AdapterStatus{}})
	})
	mux.HandleFunc("PUT "+v1.BasePath+"/clusters/{id}/statuses", func(w http.ResponseWriter, r *http.Request) {
		var report v1.Report
		if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		f.reports[r.PathValue("id")] = append(f.reports[r.PathValue("id")], report)
		f.parents = append(f.parents, r.Header.Get("Traceparent"))
		f.mu.Unlock()
		answer(w, http.StatusCreated, v1.AdapterStatus{Adapter: report.Adapter})
	})
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

func (f *httpFleet) wasRead(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.read, id)
}

func (f *httpFleet) of(id string) []v1.Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.reports[id])
}

// traces counts the reports that carry a trace.
func (f *httpFleet) traces(id string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.parents {
		if strings.Contains(p, id) {
			n++
		}
	}
	return n
}
