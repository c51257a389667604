package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

// TestThousandClusters holds that a fleet of some size is announced in full,
// each resource once, within the memory that the sentinel's specification
// gives it. Once all of them are older than their age, each is announced in the
// round that finds it: none waits for a later one.
func TestThousandClusters(t *testing.T) {
	t.Parallel()
	const clusters, most = 1000, 128 << 20
	l := newLoop(t, oneAdapter(), "poll_interval: 100ms\nmax_age_not_ready: 1h\nevent_log_level: debug\n")
	var work sync.WaitGroup
	for worker := range 8 {
		work.Go(func() {
			for i := range clusters / 8 {
				req := v1.CreateRequest{Name: fmt.Sprintf("cluster-%d-%d", worker, i), Spec: json.RawMessage(`{}`)}
				if _, err := l.api.Clusters().Create(t.Context(), req); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	eventually(t, patience, func() error {
		if n := len(l.queue.all()); n < clusters {
			return fmt.Errorf("%d events, want %d", n, clusters)
		}
		return nil
	})
	wantMetric(t, l.sentinel, "hyperfleet_sentinel_pending_resources", clusters)
	l.wantRounds(t, 5)
	distinct := map[string]bool{}
	for _, e := range l.queue.all() {
		distinct[e.Subject] = true
	}
	if n := len(l.queue.all()); n != clusters || len(distinct) != clusters {
		t.Errorf("%d events about %d clusters, want one about each of %d", n, len(distinct), clusters)
	}
	if peak := l.sentinel.peakMemory(t); peak > most {
		t.Errorf("the sentinel took %d MiB at its peak, want %d at most", peak>>20, most>>20)
	}
	wantExpiredAtOnce(t, l.fleet, slices.Sorted(maps.Keys(distinct)))
}

// wantExpiredAtOnce reports on clusters so that all of them are ready and older
// than their age, and starts another sentinel with default settings. Only the
// age is 25 minutes instead of 30, because no report may be older than that.
func wantExpiredAtOnce(t *testing.T, f *fleet, ids []string) {
	t.Helper()
	at := time.Now().Add(-26 * time.Minute)
	var work sync.WaitGroup
	for part := range slices.Chunk(ids, len(ids)/8) {
		work.Go(func() {
			for _, id := range part {
				stored, err := f.api.Clusters().Report(t.Context(), id, v1.Report{
					Adapter: "dns", ObservedGeneration: 1, ObservedTime: &at,
					Conditions: []v1.ReportCondition{
						{Type: v1.ConditionAvailable, Status: v1.ConditionTrue},
						{Type: v1.ConditionApplied, Status: v1.ConditionTrue},
						{Type: v1.ConditionHealth, Status: v1.ConditionTrue},
					},
				})
				if err != nil || !stored {
					t.Errorf("report on %s: stored %v, %v", id, stored, err)
					return
				}
			}
		})
	}
	work.Wait()
	exchange := exchangeOf(t) + "-expired"
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: exchange, queue: exchange})
	s := newSentinel(t, f.url, "resource_type: clusters\nmax_age_ready: 25m\nevent_log_level: debug\nhyperfleet_api: {endpoint: API}\n", rabbitEnv(rabbit(t).Addr(), exchange))
	eventually(t, patience, func() error {
		if n := len(q.all()); n < len(ids) {
			return fmt.Errorf("%d events about expired clusters, want %d", n, len(ids))
		}
		return nil
	})
	announced := map[string]int{}
	for _, e := range q.all() {
		announced[e.Subject]++
		if e.str("reason") != reasonAgeReady {
			t.Errorf("%s was announced because %q, want %q", e.Subject, e.str("reason"), reasonAgeReady)
		}
	}
	for _, id := range ids {
		if announced[id] != 1 {
			t.Errorf("%d events about %s, want 1", announced[id], id)
		}
	}
	if n := s.metrics(t).sum("hyperfleet_sentinel_decisions_total", "reason", decision.ReasonDeferred.String()); n != 0 {
		t.Errorf("%g times an expired cluster was left to a later round, want never", n)
	}
}

// TestLargeList holds that a pod of the specification's size reads a list of 60 MB
// that comes in one piece, as an array and in an envelope.
func TestLargeList(t *testing.T) {
	t.Parallel()
	const clusters, most = 30_000, 128 << 20
	now := time.Now().UTC().Format(time.RFC3339)
	item := func(id string, generation int) string {
		return fmt.Sprintf(`{"id":%q,"generation":%d,"spec":{"filler":%q},"status":{"phase":"Ready","observed_generation":1,"last_updated_time":%q}}`,
			id, generation, strings.Repeat("x", 1900), now)
	}
	for name, around := range map[string][2]string{"Bare": {"[", "]"}, "Enveloped": {`{"kind":"ClusterList","items":[`, `],"size":30000}`}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			api := newStub(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				bytes, _ := io.WriteString(w, around[0]) // an error ends the writes that follow too
				for i := range clusters {
					n, _ := io.WriteString(w, item(fmt.Sprintf("cls-%06d", i), 1)+",")
					bytes += n
				}
				n, _ := io.WriteString(w, item("changed", 2)+around[1])
				sent.Store(int64(bytes + n))
			})
			q := openQueue(t, binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t)})
			env := rabbitEnv(rabbit(t).Addr(), exchangeOf(t)) // without GOMEMLIMIT, as the specification's own manifest
			s := newSentinel(t, api.URL, "resource_type: clusters\npoll_interval: 100ms\nmax_age_ready: 12h\nhyperfleet_api: {endpoint: API, timeout: 10m}\n", env)
			if e := q.wantEvents(t, "changed", 1, 5*patience)[0]; e.str("reason") != reasonGeneration {
				t.Errorf("reason %q, want %q", e.str("reason"), reasonGeneration)
			}
			s.wantReady(t)
			wantMetric(t, s, "hyperfleet_sentinel_pending_resources", clusters+1)
			if n := len(q.all()); n != 1 {
				t.Errorf("%d events, want one, about the last of the list", n)
			}
			peak := s.peakMemory(t)
			t.Logf("%d MB listed, %d MiB at the peak", sent.Load()>>20, peak>>20)
			if peak > most {
				t.Errorf("the sentinel took %d MiB at its peak, want %d at most", peak>>20, most>>20)
			}
		})
	}
}

// peakMemory is the largest resident set of the process so far, in bytes.
func (p *process) peakMemory(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("the kernel does not say how much memory was used")
	return 0
}
