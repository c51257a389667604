package watch_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// TestFeedDoesNotAnswer checks that watchers get no bookmarks while a read hangs, and that the read
// times out, because its connection may be dead.
func TestFeedDoesNotAnswer(t *testing.T) {
	run(t, nil, func(f *fixture) {
		w := f.watch(everything())
		pass(time.Second)
		f.feed.hung.Store(true)
		f.put("a")
		pass(5 * watch.BookmarkEvery / 2)
		wantTold(t, w.client, "bookmark", ":", ":")
		f.feed.hung.Store(false)
		pass(time.Minute)
		if told := w.told(); !slices.Contains(told, "changed a") || told[len(told)-1] != "bookmark" {
			t.Errorf("told %q", told)
		}
	})
}
