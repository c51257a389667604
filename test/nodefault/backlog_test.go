package nodefault

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

// sinksFile returns a configuration file with additional sinks, each of several lines.
func sinksFile(outbox string, sinks ...string) string {
	text := "outbox: {retry: 100ms, max_retry: 500ms" + outbox + "}\nchange_events:\n  timeout: 2m\n  sinks:\n"
	for _, s := range sinks {
		text += "  - " + strings.Join(strings.Split(s, "\n"), "\n    ") + "\n    allow_http: true\n    allow_addresses: [127.0.0.0/8]\n"
	}
	return text
}

// sessions takes a node out of service and releases it a number of times.
func sessions(c *faulttest.Cluster, node string, from, to int) {
	c.Helper()
	for i := from; i < to; i++ {
		fault := faulttest.Fatal(node, fmt.Sprintf("check-%02d", i))
		c.Report(fault)
		c.AwaitFault(node, "a cordon", func(f *v1alpha1.NodeFault) bool { return f.Status.Owned != nil && f.Status.Owned.Cordon })
		c.Report(fault.Healthy())
		c.AwaitPhase(node, v1alpha1.PhaseHealthy)
	}
}

// fastEnv releases nodes as soon as they are healthy.
func fastEnv() map[string]string { return map[string]string{"NODE_FAULT_HEALTHY_FOR": "1ms"} }

// TestSinkThatWaitsForItsSecret verifies the backlog of a sink that waits for its
// credential. Records that do not fit are counted, so the delivered and the dropped ones
// are all records.
func TestSinkThatWaitsForItsSecret(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	second := faulttest.StartSink(t)
	token := filepath.Join(t.TempDir(), "token")
	const node = "node-waits"
	c.CreateReadyNode(node, nil)
	p := c.StartController(fastEnv(), "--config="+c.WriteTempFile("config.yaml", sinksFile("", fmt.Sprintf("name: second\nendpoint: %s\nauth_token_file: %s", second.URL(), token))))
	const some = 12
	sessions(c, node, 0, some)
	c.AwaitFault(node, "all records kept that a sink waits for", func(f *v1alpha1.NodeFault) bool {
		n := int64(len(f.Status.History))
		return f.Status.LastSequence > 32 && f.Status.LastSequence <= 64 && n == f.Status.LastSequence && f.Status.Dropped == 0 && f.Status.SinkDeliveries["default"].ProcessedSequence == f.Status.LastSequence
	})
	p.Kill()
	c.StartController(fastEnv(), "--config="+c.WriteTempFile("config.yaml", sinksFile("", fmt.Sprintf("name: second\nendpoint: %s\nauth_token_file: %s", second.URL(), token))))
	sessions(c, node, some, 2*some)
	f := c.AwaitFault(node, "records dropped, and counted", func(f *v1alpha1.NodeFault) bool {
		return len(f.Status.History) == 64 && f.Status.Dropped > 0 && f.Status.Dropped == f.Status.LastSequence-64
	})
	if err := os.WriteFile(token, []byte("a-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	f = c.AwaitFault(node, "everything delivered or counted as dropped", func(now *v1alpha1.NodeFault) bool {
		return now.Status.LastSequence == f.Status.LastSequence && settled("default", "second")(now)
	})
	dropped := f.Status.SinkDeliveries["second"].Dropped
	if told := len(second.ReceivedEvents(node, false)); int64(told)+dropped != f.Status.LastSequence || dropped == 0 {
		t.Errorf("of %d records the sink was told %d, and %d count as dropped", f.Status.LastSequence, told, dropped)
	}
	if all := c.Sink.ReceivedEvents(node, false); int64(len(all)) != f.Status.LastSequence {
		t.Errorf("the other sink was told %d times, want %d", len(all), f.Status.LastSequence)
	}
}

// TestMendedSinkHearsWhatItMissed verifies that a corrected sink receives each missed
// record once. A sink that was removed and added again, and a new sink, receive later
// records.
func TestMendedSinkHearsWhatItMissed(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	second, third, fourth := faulttest.StartSink(t), faulttest.StartSink(t), faulttest.StartSink(t)
	const sick = "cordon drain-completed uncordon"
	sink := func(name, url string) string { return fmt.Sprintf("name: %s\nendpoint: %s", name, url) }
	var p *kubebedtest.Process
	start := func(outbox string, sinks ...string) {
		t.Helper()
		if p != nil {
			p.Kill() // like a power failure
		}
		p = c.StartController(fastEnv(), "--config="+c.WriteTempFile("config.yaml", sinksFile(outbox, sinks...)))
	}
	broken := "ftp://sink.example.com/changes"
	for _, node := range []string{"node-before", "node-while-broken", "node-while-out", "node-after"} {
		c.CreateReadyNode(node, nil)
	}

	start("", sink("second", second.URL()))
	sessions(c, "node-before", 0, 1)
	second.AwaitActions(t, "node-before", sick)
	c.AwaitFault("node-before", "nothing left", settled("default", "second"))

	start("", sink("second", broken))
	if err := p.CheckLogged("change event sink disabled"); err != nil {
		t.Error(err)
	}
	sessions(c, "node-while-broken", 0, 1)
	sessions(c, "node-before", 1, 2)
	c.Sink.AwaitActions(t, "node-while-broken", sick)
	c.AwaitFault("node-while-broken", "three records that wait for a sink that cannot work", func(f *v1alpha1.NodeFault) bool {
		return f.Status.UndeliveredChangeEvents == 3 && f.Status.SinkDeliveries["second"].LastError == "invalid_sink" && f.Status.SinkDeliveries["default"].ProcessedSequence == f.Status.LastSequence
	})
	if got := p.Metrics(); !strings.Contains(got, `fleetloop_change_events_sink_config_valid{sink="second"} 0`) || !strings.Contains(got, `fleetloop_change_events_sink_config_valid{sink="default"} 1`) {
		t.Error("no metric says that the sink cannot work")
	}

	start("", sink("second", second.URL()))
	second.AwaitActions(t, "node-while-broken", sick)
	second.AwaitActions(t, "node-before", sick+" "+sick)
	for _, node := range []string{"node-before", "node-while-broken"} {
		c.AwaitFault(node, "nothing left", settled("default", "second"))
	}

	start("", sink("third", third.URL()))
	sessions(c, "node-while-out", 0, 1)
	c.AwaitFault("node-while-out", "the sink that is not configured forgotten", func(f *v1alpha1.NodeFault) bool {
		_, is := f.Status.SinkDeliveries["second"]
		return !is && settled("default", "third")(f)
	})
	c.AwaitFault("node-before", "the sink that is not configured forgotten", func(f *v1alpha1.NodeFault) bool {
		_, is := f.Status.SinkDeliveries["second"]
		return !is && settled("default", "third")(f)
	})

	start(", replay: [fourth]", sink("second", second.URL()), sink("third", third.URL()), sink("fourth", fourth.URL()))
	sessions(c, "node-after", 0, 1)
	for _, s := range []*faulttest.Sink{second, third, fourth} {
		s.AwaitActions(t, "node-after", sick)
	}
	fourth.AwaitActions(t, "node-before", sick+" "+sick)
	fourth.AwaitActions(t, "node-while-out", sick)
	for name, want := range map[*faulttest.Sink]map[string]int{
		second: {"node-before": 6, "node-while-broken": 3, "node-while-out": 0, "node-after": 3},
		third:  {"node-before": 0, "node-while-broken": 0, "node-while-out": 3, "node-after": 3},
		fourth: {"node-before": 6, "node-while-broken": 3, "node-while-out": 3, "node-after": 3},
	} {
		for node, n := range want {
			c.AwaitFault(node, "nothing left", settled("default", "second", "third", "fourth"))
			if got := name.ReceivedEvents(node, false); len(got) != n {
				t.Errorf("sink %s was told %d times of %s, want %d", name.URL(), len(got), node, n)
			}
		}
	}
}

// TestOneNodeHoldsUpNoOther verifies that a node whose events a sink rejects or never
// answers does not delay the events of other nodes.
func TestOneNodeHoldsUpNoOther(t *testing.T) {
	const bad, others = "node-bad", 23
	for name, answer := range map[string]func(context.Context) int{
		"Fails":  func(context.Context) int { return http.StatusInternalServerError },
		"Silent": func(ctx context.Context) int { <-ctx.Done(); return http.StatusGatewayTimeout },
	} {
		t.Run(name, func(t *testing.T) {
			c := faulttest.UseSharedCluster(t)
			c.Sink.Answer(func(ctx context.Context, p changeevent.Payload) int {
				if p.Node == bad {
					return answer(ctx)
				}
				return http.StatusAccepted
			})
			p := c.StartController(nil, "--change-events-timeout=10m", "--change-events-shutdown-timeout=1s")
			nodes := []string{bad}
			for i := range others {
				nodes = append(nodes, fmt.Sprintf("node-%02d", i))
			}
			for _, node := range nodes {
				c.CreateReadyNode(node, nil)
			}
			c.Report(faulttest.NewXidReport(bad))
			for _, node := range nodes[1:] {
				c.Report(faulttest.NewXidReport(node))
			}
			for _, node := range nodes[1:] {
				c.Sink.AwaitActions(t, node, begun)
			}
			if got := c.Sink.JoinReceivedActions(bad); got != "" {
				t.Errorf("the sink took %s of the node that it fails on", got)
			}
			p.Kill()
		})
	}
}

// TestStopRepeatsNothing verifies that the process waits for pending responses and
// records them before it ends, so that the next one repeats nothing. Each event is
// counted once.
func TestStopRepeatsNothing(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	const node = "node-stopped"
	c.CreateReadyNode(node, nil)
	var failed atomic.Bool
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	c.Sink.Answer(func(ctx context.Context, p changeevent.Payload) int {
		if !failed.Swap(true) {
			return http.StatusServiceUnavailable
		}
		if p.Action != changeevent.ActionRebootRequested {
			return http.StatusAccepted
		}
		asked <- struct{}{}
		select {
		case <-answer:
		case <-ctx.Done():
		}
		return http.StatusAccepted
	})
	env := map[string]string{"CHANGE_EVENTS_SHUTDOWN_TIMEOUT": "2m", "CHANGE_EVENTS_TIMEOUT": "2m", "SHUTDOWN_TIMEOUT": "3m"}
	p := c.StartController(env)
	c.Report(faulttest.NewXidReport(node))
	<-asked
	metrics := p.Metrics()
	ended := make(chan int, 1)
	go func() { ended <- p.Stop() }()
	kubebedtest.Eventually(t, func(context.Context) error { return p.CheckLogged("waiting for pending change events") })
	close(answer)
	if code := <-ended; code != 0 {
		t.Errorf("it ends with %d", code)
	}
	for action, want := range map[string]string{"cordon": "1", "drain-completed": "1"} {
		if line := fmt.Sprintf("nvsentinel_change_events_total{action=%q,status=\"success\"} %s\n", action, want); !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if strings.Contains(metrics, `status="failed"`) {
		t.Error("an event that was taken in the end counts as failed, too")
	}
	if !strings.Contains(metrics, `nvsentinel_change_events_failed_total{action="cordon",error="server_error"} 1`) {
		t.Error("the try that failed is counted nowhere")
	}
	if f, err := c.Fault(t.Context(), node); err != nil || f.Status.SinkDeliveries["default"].ProcessedSequence != 3 {
		t.Errorf("the last answer is not written down: %v %+v", err, f.Status.SinkDeliveries)
	}
	c.Sink.Answer(nil)
	c.StartController(nil)
	c.AwaitFault(node, "nothing left", settled("default"))
	if got := c.Sink.ReceivedEvents(node, false); len(got) != 3 {
		t.Errorf("the sink was told %d times of three changes: %v", len(got), got)
	}
}
