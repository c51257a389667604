package watch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// TestLargeChangesAreFetchedFewTimes checks that reads which end early do not each fetch a full page, whether the hub
// reads for a watcher or the watcher, being behind, reads itself. Small changes are fetched in full pages again.
func TestLargeChangesAreFetchedFewTimes(t *testing.T) {
	const changes, padding = watch.PageLines, 128 << 10
	pad := strings.Repeat("x", padding)
	for name, behind := range map[string]bool{"Shared": false, "Own": true} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				request := everything()
				if behind {
					request = after(f.feed.settled())
				}
				var w *watching
				if !behind {
					w = f.watch(request)
				}
				for i := range changes {
					f.feed.put(fmt.Sprint("large-", i), func(r *row) { r.padding = pad })
				}
				if behind {
					w = f.watch(request)
				}
				pass(time.Minute)
				if n := strings.Count(strings.Join(w.told(), "\n"), "changed large-"); n != changes {
					t.Errorf("%d changes arrived", n)
				}
				if n := f.feed.fetchedChanges(); n > 4*changes {
					t.Errorf("%d changes were fetched for %d", n, changes)
				}

				before, _ := f.feed.counts()
				for i := range 4 * changes {
					f.put(fmt.Sprint("small-", i))
				}
				pass(50 * time.Millisecond)
				if after, _ := f.feed.counts(); after-before > 20 {
					t.Errorf("%d reads of %d small changes", after-before, 4*changes)
				}
			})
		})
	}
}
