package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestThousandClusters holds that a fleet of some size is announced in full,
// each resource once, within the memory that the sentinel's specification
// gives it.
func TestThousandClusters(t *testing.T) {
	t.Parallel()
	const clusters, most = 1000, 128 << 20
	l := newLoop(t, oneAdapter(), "poll_interval: 100ms\nmax_age_not_ready: 1h\nlog_events: debug\n")
	var work sync.WaitGroup
	for worker := range 8 {
		work.Go(func() {
			for i := range clusters / 8 {
				req := v1.CreateRequest{Name: fmt.Sprintf("cluster-%d-%d", worker, i), Spec: json.RawMessage(`{}`)}
				if _, err := l.api.Create(t.Context(), v1.CollectionClusters, req); err != nil {
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
