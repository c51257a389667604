package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/broker/brokertest"
)

// A proxied is a sentinel whose ways to the API and to the broker lead through
// proxies that fail on demand.
type proxied struct {
	*loop
	apiWay, brokerWay *brokertest.FaultProxy
}

// newProxied starts a loop with proxies. The configuration is without
// resource_type and hyperfleet_api.
func newProxied(t *testing.T, config string, env map[string]string) *proxied {
	t.Helper()
	f := newFleet(t, oneAdapter())
	p := &proxied{loop: &loop{fleet: f}, apiWay: newProxy(t, strings.TrimPrefix(f.url, "http://")), brokerWay: newProxy(t, rabbit(t).Addr())}
	p.queue = openQueue(t, binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t) + "-test"})
	p.sentinel = newSentinel(t, "http://"+p.apiWay.Addr(),
		sentinelConfig("resource_type: clusters\nhyperfleet_api: {endpoint: API, timeout: 1m}\n"+config),
		mergeEnv(rabbitEnv(p.brokerWay.Addr(), exchangeOf(t)), env))
	p.sentinel.wantReady(t)
	return p
}

func newProxy(t *testing.T, target string) *brokertest.FaultProxy {
	t.Helper()
	proxy, err := brokertest.StartFaultProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// TestStop holds that the sentinel ends with exit code 0 and within its bound
// from any state, and at once where nothing is under way.
func TestStop(t *testing.T) {
	t.Parallel()
	const asleep = "poll_interval: 1h\n"
	const awake = "poll_interval: 50ms\n"
	bounds := map[string]string{"SENTINEL_SHUTDOWN_TIMEOUT": "1s", "BROKER_STOP_TIMEOUT": "1s"}
	cases := map[string]struct {
		reason string
		config string
		signal os.Signal
		state  func(t *testing.T, p *proxied)
		within time.Duration
	}{
		"Asleep":    {"it does not wait for its next round", asleep, syscall.SIGTERM, func(*testing.T, *proxied) {}, 5 * time.Second},
		"Interrupt": {"the terminal's signal is as good", asleep, syscall.SIGINT, func(*testing.T, *proxied) {}, 5 * time.Second},
		"BrokerHangs": {
			"confirms are awaited no longer than the bound", awake, syscall.SIGTERM, func(t *testing.T, p *proxied) {
				t.Helper()
				p.brokerWay.PauseTraffic()
				p.create(t, "cluster-1", "")
				wantMetric(t, p.sentinel, "hyperfleet_sentinel_in_flight_events", 1)
			}, 8 * time.Second,
		},
		"BrokerIsDown": {
			"an event that waits for its next attempt is left", awake, syscall.SIGTERM, func(t *testing.T, p *proxied) {
				t.Helper()
				p.brokerWay.SetRefuseConnections(true)
				p.brokerWay.ResetConnections()
				p.create(t, "cluster-1", "")
				wantMetric(t, p.sentinel, "hyperfleet_sentinel_publish_retries_total", 1)
			}, 8 * time.Second,
		},
		"APIHangs": {
			"a request that is under way is given up", awake + "source: {mode: sweep}\n", syscall.SIGTERM, func(t *testing.T, p *proxied) {
				t.Helper()
				p.apiWay.PauseTraffic()
				p.wantStuck(t)
			}, 5 * time.Second,
		},
		"WatchHangs": {
			"and so is a watch that hears nothing", awake, syscall.SIGTERM, func(t *testing.T, p *proxied) {
				t.Helper()
				wantMetric(t, p.sentinel, "hyperfleet_sentinel_source_mode", 1, "mode", "watch")
				p.apiWay.PauseTraffic()
			}, 5 * time.Second,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t, tc.config, bounds)
			tc.state(t, p)
			if code := p.sentinel.stop(t, tc.signal, tc.within); code != 0 {
				t.Errorf("%s: exit code %d, want 0", tc.reason, code)
			}
			if len(p.sentinel.log.find("stopped")) != 1 {
				t.Error("the log does not say that it stopped")
			}
		})
	}
}

// wantStuck waits until no round ends any more.
func (p *proxied) wantStuck(t *testing.T) {
	t.Helper()
	last, since := -1.0, time.Now()
	eventually(t, patience, func() error {
		if n := p.sentinel.metrics(t).sum("hyperfleet_sentinel_reconcile_duration_seconds_count"); n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) < time.Second {
			return errors.New("rounds go on")
		}
		return nil
	})
}

// TestStopMidRound stops the sentinel while many events are on their way over
// a slow line: those that were sent are confirmed, noted and in the queue, no
// other is, and nothing is half sent.
func TestStopMidRound(t *testing.T) {
	t.Parallel()
	const clusters = 120
	p := newProxied(t, "poll_interval: 50ms\npublish: {max_in_flight: 16}\n", nil)
	p.brokerWay.SetLatency(150 * time.Millisecond)
	p.brokerWay.PauseTraffic() // until all clusters are there: on a busy machine, creating them takes longer than publishing
	for i := range clusters {
		p.create(t, fmt.Sprintf("cluster-%d", i), "")
	}
	p.brokerWay.ResumeTraffic()
	wantMetric(t, p.sentinel, "hyperfleet_sentinel_events_published_total", 20)
	if code := p.sentinel.stop(t, syscall.SIGTERM, 15*time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	noted := map[string]bool{}
	for _, line := range p.sentinel.log.find("event published") {
		id, _ := line["event_id"].(string)
		noted[id] = true
	}
	var delivered map[string]bool
	eventually(t, patience, func() error { // the queue has them, our reader perhaps not yet
		delivered = map[string]bool{}
		for _, e := range p.queue.all() {
			delivered[e.ID] = true
		}
		for id := range noted {
			if !delivered[id] {
				return fmt.Errorf("event %s counts as published and is not in the queue", id)
			}
		}
		return nil
	})
	for id := range delivered {
		if !noted[id] {
			t.Errorf("event %s is in the queue and was not awaited", id)
		}
	}
	if len(delivered) == clusters {
		t.Errorf("all %d events were sent: the stop was not in the middle of a round", clusters)
	}
}
