package sentinel_test

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// A brieflyAPI sends one event in each watch, ends it, and accepts no cursor.
type brieflyAPI struct{ *feedAPI }

func (a brieflyAPI) Watch(_ context.Context, _ string, _ url.Values, handle func(v1.WatchEvent) error) error {
	if err := handle(v1.WatchEvent{Type: v1.WatchBookmark, Data: []byte("{}"), Cursor: a.now()}); err != nil {
		return err
	}
	return io.EOF
}

// TestCursorsThatNeverLast: an API whose cursors are always lost is not asked for
// new ones all the time.
func TestCursorsThatNeverLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFeedAPI(clusterIDs(5)...)
		api.oldest = 1 // of the changes, of which there are none
		b := newFollower(t, api, func(_ *sentinel.Config, d *sentinel.Deps) { d.API = brieflyAPI{api} })
		b.run(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := len(api.calls()); got > 60 {
			t.Errorf("%d requests in a minute", got)
		}
		b.wantMode(t, sentinel.ModeSweep)
	})
}

// TestChangesWithoutEnd: a server that always has more at the same place is
// not asked for it without a pause.
func TestChangesWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFeedAPI(clusterIDs(5)...)
		b := newFollower(t, api, func(c *sentinel.Config, d *sentinel.Deps) { c.Source.Mode, d.API = sentinel.ModeCursor, stuckAPI{api} })
		b.run(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := len(api.calls()); got > 60 {
			t.Errorf("%d requests in a minute", got)
		}
		if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "the cursor did not advance") {
			t.Errorf("ready is %v", err)
		}
	})
}

// A stuckAPI always returns more changes, with the same cursor.
type stuckAPI struct{ *feedAPI }

func (a stuckAPI) ListPage(ctx context.Context, collection string, q url.Values, dst []byte) ([]byte, error) {
	page, err := a.feedAPI.ListPage(ctx, collection, q, dst)
	if err != nil || !q.Has("changed_since") {
		return page, err
	}
	return fmt.Appendf(dst[:0], `{"items":[],"removed":[],"more":true,"cursor":%q}`, q.Get("changed_since")), nil
}
