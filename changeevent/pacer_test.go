package changeevent

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// TestSinkIsLeftAlone verifies that Retry-After applies to all events, regardless of its
// length, and also when the client is closed.
func TestSinkIsLeftAlone(t *testing.T) {
	var requests atomic.Int32
	asked := make(chan struct{}, 16)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		requests.Add(1)
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
		asked <- struct{}{}
	})
	reg := prometheus.NewRegistry()
	cfg := genuine(s.URL)
	cfg.Retry, cfg.Registerer = Retry{MaxElapsedTime: time.Minute}, reg
	c := start(t, cfg)
	var told deliveries
	c.SendChangeEvent(t.Context(), ChangeEvent{ID: "0", Action: ActionCordon, NodeName: "n", OnDelivery: told.add})
	<-asked
	for statsOf(t, c).PausedUntil.IsZero() {
		runtime.Gosched() // the client is about to read the response
	}
	for i := range 9 {
		c.SendChangeEvent(t.Context(), ChangeEvent{ID: strconv.Itoa(i + 1), Action: ActionCordon, NodeName: "n" + strconv.Itoa(i), OnDelivery: told.add})
	}
	err := c.Close()
	if err == nil || !strings.Contains(err.Error(), "9 events not delivered") {
		t.Errorf("Close: %v, want that 9 events were not delivered", err)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests, want none after the one that was answered with an hour to wait", n)
	}
	classes := map[Class]int{}
	for _, d := range told.got() {
		classes[d.Class]++
	}
	if diff := cmp.Diff(map[Class]int{ClassRateLimited: 1, ClassShutdown: 9}, classes); diff != "" {
		t.Errorf("what was told (-want +got):\n%s", diff)
	}
	wantCounted(t, c, reg, 10)
}

// TestLongRetryAfter verifies that all workers wait longer than MaxElapsedTime if the
// sink asks for it, up to MaxAge.
func TestLongRetryAfter(t *testing.T) {
	cases := map[string]struct {
		reason string
		after  time.Duration
		least  time.Duration // before the second request
		want   map[Class]int
	}{
		"Short":         {"within MaxElapsedTime", time.Minute, time.Minute, map[Class]int{"": 2}},
		"BeyondElapsed": {"the sink says when, not we", 20 * time.Minute, 20 * time.Minute, map[Class]int{"": 2}},
		"BeyondAge":     {"what waits now would be too old then", 48 * time.Hour, 12 * time.Hour, map[Class]int{ClassRateLimited: 1, "": 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var came times
				c := start(t, enabled(&script{answer: func(n int, _ *http.Request) (*http.Response, error) {
					came.note()
					if n == 0 {
						return status(http.StatusTooManyRequests, "Retry-After", fmt.Sprint(tc.after.Seconds())), nil
					}
					return status(http.StatusOK), nil
				}}))
				own := c.(*client) //nolint:errcheck // it is one
				var told deliveries
				c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: "n", OnDelivery: told.add})
				synctest.Wait()
				other := ChangeEvent{Action: ActionCordon, OnDelivery: told.add}
				for i := 0; own.shardOf(&other) == own.shardOf(&ChangeEvent{NodeName: "n"}); i++ {
					other.NodeName = strconv.Itoa(i)
				}
				c.SendChangeEvent(t.Context(), other)
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				classes := map[Class]int{}
				for _, d := range told.got() {
					classes[d.Class]++
				}
				if diff := cmp.Diff(tc.want, classes); diff != "" {
					t.Errorf("%s: what became of the events (-want +got):\n%s", tc.reason, diff)
				}
				waits := came.waits()
				if len(waits) == 0 || waits[0] < tc.least || waits[0] > tc.least+time.Second {
					t.Errorf("%s: waits %v, want the first to be %s", tc.reason, waits, tc.least)
				}
			})
		})
	}
}

// TestTLSTries verifies which TLS failures are retried. Failures that a person has to fix
// are not.
func TestTLSTries(t *testing.T) {
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	var handshakes atomic.Int32
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	secure.Config.ErrorLog = quiet
	secure.TLS = newTLS(&handshakes)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	old := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	old.Config.ErrorLog = quiet
	old.TLS = newTLS(&handshakes)
	old.TLS.MaxVersion = tls.VersionTLS11
	old.StartTLS()
	t.Cleanup(old.Close)
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	cases := map[string]struct {
		reason     string
		endpoint   string
		attempts   int
		handshakes int32
	}{
		"Untrusted":  {"somebody has to mend the certificate", secure.URL, 1, 1},
		"NoTLS":      {"or the URL", strings.Replace(plain.URL, "http:", "https:", 1), 1, 0},
		"OldVersion": {"a handshake may fail while a sink is being rolled out", old.URL, 3, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			handshakes.Store(0)
			cfg := genuine(tc.endpoint)
			cfg.Retry = Retry{MaxAttempts: 3, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond}
			settled := make(chan Delivery, 1)
			c := start(t, cfg)
			c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, OnDelivery: func(d Delivery) { settled <- d }})
			d := <-settled
			if d.Class != ClassTLS || d.Permanent || d.Attempts != tc.attempts || handshakes.Load() != tc.handshakes {
				t.Errorf("%s: %+v after %d handshakes, want %d attempts", tc.reason, d, handshakes.Load(), tc.attempts)
			}
		})
	}
}

// TestHoldOfAnother verifies that a pause in the response to one request also applies to
// requests of other workers. They are sent after the pause, or not at all if the client
// is closed meanwhile or the events are too old.
func TestHoldOfAnother(t *testing.T) {
	const hold, soon, later = time.Hour, 10 * time.Millisecond, 20 * time.Millisecond
	gather := func(c *Config) {
		c.Format, c.BatchWait, c.MaxConcurrentRequests = FormatCloudEventsBatch, time.Second, 4
	}
	cases := map[string]struct {
		reason string
		config func(*Config)
		held   time.Duration // delay of the response that asks for the pause
		begin  time.Duration // when the others are sent
		takes  time.Duration // delay of the first response to them
		code   int           // status of that response
		header []string
		others int
		first  int // requests before the pause
	}{
		"Retry":     {"a retry waits", func(*Config) {}, later, 0, later, http.StatusServiceUnavailable, nil, 1, 2},
		"Meanwhile": {"it comes during a shorter wait", func(*Config) {}, 30 * time.Second, 0, later, http.StatusTooManyRequests, []string{"Retry-After", "60"}, 1, 2},
		"Renewed":   {"so does another credential", func(*Config) {}, soon, 0, later, http.StatusUnauthorized, nil, 1, 2},
		"Halves":    {"so do the halves of a batch", gather, soon, 0, later, http.StatusBadRequest, nil, 2, 2},
		"Gathered":  {"it comes while events are gathered", gather, soon, time.Second / 2, later, http.StatusOK, nil, 1, 1},
	}
	for name, tc := range cases {
		for _, then := range []string{"Sent", "Closed", "Aged"} {
			t.Run(name+then, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMount(t, map[string]string{"token": "one"})
					var came times
					var sink *script
					var asked, begun atomic.Bool
					sink = &script{answer: func(n int, _ *http.Request) (*http.Response, error) {
						came.note()
						switch holds := strings.Contains(sink.got()[n].body, ActionUncordon); {
						case holds && !asked.Swap(true):
							time.Sleep(tc.held)
							return status(http.StatusTooManyRequests, "Retry-After", fmt.Sprint(hold.Seconds())), nil
						case !holds && !begun.Swap(true):
							time.Sleep(tc.takes)
							return status(tc.code, tc.header...), nil
						}
						return status(http.StatusOK), nil
					}}
					cfg := enabled(sink)
					cfg.Timeout, cfg.AuthTokenFile = time.Minute, m.file("token")
					tc.config(&cfg)
					c := start(t, cfg)
					own := c.(*client) //nolint:errcheck // it is one
					var told deliveries
					c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionUncordon, NodeName: "n"})
					time.Sleep(tc.begin)
					other := ChangeEvent{Action: ActionCordon, NodeName: "0", OnDelivery: told.add}
					for i := 1; own.shardOf(&other) == own.shardOf(&ChangeEvent{NodeName: "n"}); i++ {
						other.NodeName = strconv.Itoa(i)
					}
					if then == "Aged" {
						other.Timestamp = time.Now().Add(10*time.Minute - DefaultMaxAge)
					}
					for i := range tc.others {
						other.ID = strconv.Itoa(i)
						c.SendChangeEvent(t.Context(), other)
					}
					synctest.Wait()
					m.swap(t, map[string]string{"token": "two"})
					for time.Until(statsOf(t, c).PausedUntil) < hold/2 {
						time.Sleep(time.Millisecond)
					}
					until := statsOf(t, c).PausedUntil
					time.Sleep(5 * time.Second)
					if then == "Closed" {
						before := time.Now()
						if err := c.Close(); !time.Now().Equal(before) {
							t.Errorf("%s: Close waited %s for nothing: %v", tc.reason, time.Since(before), err)
						}
					}
					time.Sleep(3 * hold)
					synctest.Wait()
					requests, after := 0, 0
					for _, at := range came.all {
						switch {
						case at.Before(until.Add(-hold)):
							requests++
						case at.Before(until):
							t.Errorf("%s: a request came %s before the sink was to be asked again", tc.reason, until.Sub(at))
						default:
							after++
						}
					}
					if requests != tc.first {
						t.Errorf("%d requests before the sink asked to be left alone, want %d", requests, tc.first)
					}
					want := map[string]int{"Sent": 1 + tc.others, "Aged": 1}[then] // one event was told to wait
					if after != want {
						t.Errorf("%s: %d requests after that time, want %d", tc.reason, after, want)
					}
					got := told.got()
					if len(got) != tc.others {
						t.Errorf("%s: told %+v, want %d", tc.reason, got, tc.others)
					}
					for _, d := range got {
						if (d.Class == "") != (then == "Sent") {
							t.Errorf("%s: %+v", tc.reason, d)
						}
					}
				})
			})
		}
	}
}

// TestPauseOutlastsClockChanges holds that a pause keeps its length when the wall clock is set. Otherwise a clock that is
// set back by an hour would stop all deliveries for an hour.
func TestPauseOutlastsClockChanges(t *testing.T) {
	t.Parallel()
	p := pacer{maxAge: time.Hour}
	if until, paused := p.pausedUntil(); paused || !until.IsZero() {
		t.Errorf("paused until %s before a sink asked for it", until)
	}
	p.pauseSinkFor(time.Minute)
	p.pauseSinkFor(time.Second) // a shorter pause does not replace a longer one
	until, paused := p.pausedUntil()
	if left := time.Until(until); !paused || left < 50*time.Second || left > time.Minute {
		t.Errorf("paused: %t, for %s, want a minute", paused, left)
	}
	if hasMonotonic := until != until.Round(0); !hasMonotonic {
		t.Errorf("the end of the pause is %s, want a time with a monotonic reading", until)
	}
}
