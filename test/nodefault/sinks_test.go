package nodefault

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/test/nodefault/faulttest"
)

// impatient sets one attempt per event, and short retries of the outbox.
const impatient = `
outbox: {retry: 100ms, max_retry: 500ms}
change_events:
  timeout: 2s
  retry: {max_attempts: 1}
  sinks:
  - name: second
    endpoint: %s
    allow_http: true
    allow_addresses: [127.0.0.0/8]
`

// begun lists the actions of a node that waits for its reboot.
const begun = "cordon drain-completed reboot-requested"

// TestBrokenSink verifies that a broken sink delays neither nodes nor other sinks. Its
// missed events and the error are stored in the NodeFault, and the events are delivered
// in order once it works.
func TestBrokenSink(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	second := faulttest.StartSink(t)
	c.StartController(nil, "--config="+c.WriteTempFile("config.yaml", fmt.Sprintf(impatient, second.URL())))
	answers := func(code int) func(context.Context, changeevent.Payload) int {
		return func(context.Context, changeevent.Payload) int { return code }
	}
	for name, tc := range map[string]struct {
		reason string
		answer func(context.Context, changeevent.Payload) int
		class  changeevent.Class
	}{
		"Silent": {
			"it takes the request, and never says a word",
			func(ctx context.Context, _ changeevent.Payload) int { <-ctx.Done(); return http.StatusGatewayTimeout }, changeevent.ClassTimeout,
		},
		"Down":         {"it will be up again", answers(http.StatusServiceUnavailable), changeevent.ClassServerError},
		"Unauthorized": {"somebody mends the token", answers(http.StatusUnauthorized), changeevent.ClassUnauthorized},
		"NotFound":     {"somebody mends the address", answers(http.StatusNotFound), changeevent.ClassNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			c, node := c.For(t), "node-"+strings.ToLower(name)
			c.CreateReadyNode(node, nil)
			c.Sink.Answer(tc.answer)
			c.Report(faulttest.NewXidReport(node))
			c.AwaitPhase(node, v1alpha1.PhaseRemediating)
			second.AwaitActions(t, node, begun)
			c.AwaitFault(node, string(tc.class)+" of three records", func(f *v1alpha1.NodeFault) bool {
				d := f.Status.SinkDeliveries["default"]
				return d.LastError == string(tc.class) && d.LastFailedAt != nil && d.ProcessedSequence == 0 && f.Status.UndeliveredChangeEvents == 3 && len(d.Rejected) == 0
			})
			if got := c.Sink.JoinReceivedActions(node); got != "" {
				t.Errorf("%s: it took %s", tc.reason, got)
			}
			c.Sink.Answer(nil)
			c.Sink.AwaitActions(t, node, begun)
			c.AwaitFault(node, "nothing left to tell", settled("default", "second"))
		})
	}
}

// TestRefusedAndSentAgain verifies that a rejected event is not retried and delays
// nothing. A person can request a resend once the sink is corrected.
func TestRefusedAndSentAgain(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	second := faulttest.StartSink(t)
	c.StartController(nil, "--config="+c.WriteTempFile("config.yaml", fmt.Sprintf(impatient, second.URL())))
	const node = "node-refused"
	c.CreateReadyNode(node, nil)
	c.Sink.Answer(func(_ context.Context, p changeevent.Payload) int {
		if p.Action == changeevent.ActionCordon || p.Action == changeevent.ActionRebootRequested {
			return http.StatusBadRequest
		}
		return http.StatusAccepted
	})
	c.Report(faulttest.NewXidReport(node))
	c.AwaitFault(node, "two refused records of three", func(f *v1alpha1.NodeFault) bool {
		d := f.Status.SinkDeliveries["default"]
		return d.ProcessedSequence == 3 && fmt.Sprint(d.Rejected) == "[1 3]" && d.LastError == string(changeevent.ClassClientError) && f.Status.UndeliveredChangeEvents == 0
	})
	c.Sink.AwaitActions(t, node, "drain-completed")
	second.AwaitActions(t, node, begun)
	c.Sink.Answer(nil)
	const again = "2026-05-01"
	c.PatchFaultWithRetry(node, func(f *v1alpha1.NodeFault) { f.Annotations = map[string]string{v1alpha1.AnnotationResend: again} })
	c.Sink.AwaitActions(t, node, "drain-completed cordon reboot-requested")
	c.AwaitFault(node, "nothing refused any more", func(f *v1alpha1.NodeFault) bool {
		return len(f.Status.SinkDeliveries["default"].Rejected) == 0 && f.Status.LastResendRequest == again && settled("default", "second")(f)
	})
	if all := second.ReceivedEvents(node, false); len(all) != 3 {
		t.Errorf("the other sink was told %d times", len(all))
	}
}

// settled reports whether sinks have received all events.
func settled(sinks ...string) func(*v1alpha1.NodeFault) bool {
	return func(f *v1alpha1.NodeFault) bool {
		for _, s := range sinks {
			if d := f.Status.SinkDeliveries[s]; d.ProcessedSequence != f.Status.LastSequence || d.LastError != "" {
				return false
			}
		}
		return f.Status.UndeliveredChangeEvents == 0
	}
}

// TestToldAsItWas verifies that an action is reported as done even if the controller is
// in dry run by the time of delivery.
func TestToldAsItWas(t *testing.T) {
	c := faulttest.UseSharedCluster(t)
	impatience := c.WriteTempFile("config.yaml", "outbox: {retry: 100ms, max_retry: 500ms}\nchange_events: {timeout: 2s, retry: {max_attempts: 1}}\n")
	first := c.StartController(nil, "--config="+impatience)
	const done, pretended = "node-real", "node-pretended"
	c.CreateReadyNode(done, nil)
	c.Sink.Answer(func(context.Context, changeevent.Payload) int { return http.StatusServiceUnavailable })
	c.Report(faulttest.Fatal(done, "disk"))
	c.AwaitFault(done, "a cordon that is not told yet", func(f *v1alpha1.NodeFault) bool {
		return f.Status.Phase == v1alpha1.PhaseQuarantined && f.Status.SinkDeliveries["default"].LastError != ""
	})
	first.Kill()
	c.StartController(map[string]string{"DRY_RUN": "true"}, "--config="+impatience)
	c.Sink.Answer(nil)
	c.CreateReadyNode(pretended, nil)
	c.Report(faulttest.Fatal(pretended, "disk"))
	c.Sink.AwaitActions(t, done, "cordon drain-completed")
	c.Sink.AwaitActions(t, pretended, "cordon")
	for node, dry := range map[string]bool{done: false, pretended: true} {
		for _, p := range c.Sink.ReceivedEvents(node, true) {
			if p.DryRun != dry || strings.HasPrefix(p.Summary, "[DRY-RUN]") != dry {
				t.Errorf("%s of node %q is told with dryRun %t: %s", p.Action, node, p.DryRun, p.Summary)
			}
		}
	}
}
