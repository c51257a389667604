package watch_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowWatchersHoldLittle checks that a blocked watcher holds few of the changes that the ring
// has dropped.
func TestSlowWatchersHoldLittle(t *testing.T) {
	const (
		watchers = 30
		padding  = 64 << 10
		ring     = 4 << 20
	)
	run(t, func(f *fixture) { f.hub.SetRing(8192, ring) }, func(f *fixture) {
		pad := strings.Repeat("x", padding)
		before := heap()
		for i := range watchers {
			w := f.watch(everything())
			w.slow = time.Hour
			for j := range ring / padding / 2 { // all of them are in the ring for a moment
				f.feed.put(fmt.Sprint(i, "-", j), func(r *row) { r.padding = pad })
			}
			pass(100 * time.Millisecond)
		}
		synctest.Wait()
		if each := (heap() - before - ring) / watchers; each > 1<<20 {
			t.Errorf("a watcher holds %d kB", each>>10)
		}
		f.hub.Stop()
	})
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
