package sentinel_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// A panickingFeed is an API whose watches panic.
type panickingFeed struct{ *feedAPI }

func (panickingFeed) Watch(context.Context, string, url.Values, func(v1.WatchEvent) error) error {
	panic("boom")
}

// TestPanicsComeOutOfRun: whatever goroutine it is in, and after all others
// have ended.
func TestPanicsComeOutOfRun(t *testing.T) {
	cases := map[string]struct {
		reason string
		follow bool
		change func(*sentinel.Deps, *feedAPI)
	}{
		"Publishing":      {"a goroutine that publishes", false, func(d *sentinel.Deps, _ *feedAPI) { d.OnPublished = func(sentinel.Published) { panic("boom") } }},
		"Round":           {"the goroutine of Run itself", false, func(d *sentinel.Deps, _ *feedAPI) { d.OnRound = func(sentinel.Stats) { panic("boom") } }},
		"FollowedPublish": {"the same while following", true, func(d *sentinel.Deps, _ *feedAPI) { d.OnPublished = func(sentinel.Published) { panic("boom") } }},
		"FollowedRound":   {"the same while following", true, func(d *sentinel.Deps, _ *feedAPI) { d.OnRound = func(sentinel.Stats) { panic("boom") } }},
		"Feed":            {"the goroutine that follows", true, func(d *sentinel.Deps, api *feedAPI) { d.API = panickingFeed{api} }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newFeedAPI(cluster("a", "Ready", 2, 1), cluster("b", "Ready", 2, 1))
				change := func(_ *sentinel.Config, d *sentinel.Deps) { tc.change(d, api) }
				b := newFixture(t, api.fakeAPI, change)
				if tc.follow {
					b = newFollower(t, api, change)
				}
				raised := make(chan any, 1)
				go func() {
					defer func() { raised <- recover() }()
					_ = b.Run(t.Context())
				}()
				time.Sleep(time.Minute)
				synctest.Wait()
				select {
				case value := <-raised:
					if text := fmt.Sprint(value); !strings.HasPrefix(text, "boom") {
						t.Errorf("%s: %v comes out, want the panic", tc.reason, value)
					}
				default:
					t.Errorf("%s: Run goes on", tc.reason)
				}
			})
		})
	}
}
