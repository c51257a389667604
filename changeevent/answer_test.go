package changeevent

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestAnswers(t *testing.T) {
	cases := map[int]struct {
		class     Class
		permanent bool
		log       string
	}{
		200: {}, 201: {}, 202: {}, 204: {}, 299: {},
		300: {ClassRedirect, true, "redirect"}, 301: {ClassRedirect, true, "redirect"}, 302: {ClassRedirect, true, "redirect"},
		304: {ClassRedirect, true, "redirect"}, 307: {ClassRedirect, true, "redirect"}, 308: {ClassRedirect, true, "redirect"},
		400: {ClassClientError, true, "rejected"}, 405: {ClassClientError, true, "rejected"}, 413: {ClassClientError, true, "rejected"},
		415: {ClassClientError, true, "rejected"}, 422: {ClassClientError, true, "rejected"},
		401: {ClassUnauthorized, true, "authentication failed"}, 403: {ClassForbidden, true, "authentication failed"},
		404: {ClassNotFound, true, "cluster=my-cluster-name"}, 410: {ClassGone, true, "gone"},
		408: {ClassRateLimited, false, "request rate"}, 425: {ClassRateLimited, false, "request rate"}, 429: {ClassRateLimited, false, "request rate"},
		500: {ClassServerError, false, "failed"}, 501: {ClassServerError, false, "failed"}, 503: {ClassServerError, false, "failed"}, 599: {ClassServerError, false, "failed"},
		600: {ClassServerError, false, "failed"}, 199: {ClassClientError, true, "rejected"},
	}
	for code, tc := range cases {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logged
				reg := prometheus.NewRegistry()
				sink := &script{answer: answers(code)}
				cfg := enabled(sink)
				cfg.Logger, cfg.Registerer = log.logger(), reg
				c := start(t, cfg)
				var told deliveries
				c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: "n", OnDelivery: told.add})
				time.Sleep(time.Hour)
				d := told.got()
				if len(d) != 1 || d[0].Class != tc.class || d[0].Permanent != tc.permanent || d[0].Status != code {
					t.Fatalf("deliveries %+v, want one with class %q, permanent %t", d, tc.class, tc.permanent)
				}
				if retried := len(sink.got()) > 1; retried != (tc.class != "" && !tc.permanent) {
					t.Errorf("%d requests: what may be mended is sent again, and nothing else", len(sink.got()))
				}
				if tc.class == "" {
					log.want(t, "change event delivered", "level=DEBUG")
				} else {
					log.want(t, "change event not delivered", "level=ERROR", "class="+string(tc.class), tc.log, "node=n", "sink=default")
				}
				wantCounted(t, c, reg, 1)
				what := map[bool]string{true: "success", false: "failed"}[tc.class == ""]
				if n := value(t, reg, "nvsentinel_change_events_total", "action", "cordon", "status", what); n != 1 {
					t.Errorf("%v counted as %s, want 1", n, what)
				}
				if n := value(t, reg, "nvsentinel_change_events_failed_total", "action", "cordon", "error", string(tc.class)); tc.class != "" && n != 1 {
					t.Errorf("%v counted with error %s, want 1", n, tc.class)
				}
			})
		})
	}
}

func TestEveryClassIsExplained(t *testing.T) {
	for _, class := range Classes() {
		if why := describeClass(class); why == "" || why == string(class) {
			t.Errorf("class %q is explained as %q", class, why)
		}
	}
}

// TestLogIsNotFilled verifies that a sink that is down causes few log lines, and that
// they report how many were suppressed.
func TestLogIsNotFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		cfg := once(&script{answer: answers(http.StatusNotFound)})
		cfg.Logger, cfg.MaxConcurrentRequests = log.logger(), 1
		c := start(t, cfg)
		send := func(n int) {
			for range n {
				c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon})
			}
			synctest.Wait()
		}
		send(100)
		if n := strings.Count(log.String(), "not delivered"); n != linesAtOnce {
			t.Errorf("%d lines of 100 failures, want %d", n, linesAtOnce)
		}
		time.Sleep(linesEvery)
		send(1)
		log.want(t, "suppressed=90")
	})
}

// FuzzRetryAfter verifies that no header results in an invalid delay.
func FuzzRetryAfter(f *testing.F) {
	for _, text := range []string{"", "1", "-1", "99999999999999999999", "9223372036854775807", "Sat, 01 Jan 2000 00:00:30 GMT", "1e9", " 5 ", "946684820"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, after, reset string) {
		h := http.Header{"Retry-After": {after}, "X-Ratelimit-Reset": {reset}}
		for _, class := range []Class{ClassRateLimited, ClassServerError} {
			if wait := retryAfterOrRateLimitReset(h, class, time.Unix(1_700_000_000, 0)); wait < 0 {
				t.Errorf("Retry-After %q and X-RateLimit-Reset %q make %s", after, reset, wait)
			}
		}
	})
}
