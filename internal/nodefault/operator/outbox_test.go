package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/operator"
)

const node = "gpu-node-01"

// A board stores one NodeFault like an API server.
type board struct {
	fault   *v1alpha1.NodeFault
	box     *operator.Outbox // the last one
	refuses bool             // rejects all writes
	during  func()           // is called in each write
	writes  int
}

func (b *board) Get(context.Context, string) (*v1alpha1.NodeFault, error) {
	if b.fault == nil {
		return nil, nil //nolint:nilnil // as the port says
	}
	return b.fault.DeepCopy(), nil
}

func (b *board) WriteProgress(_ context.Context, _ *v1alpha1.NodeFault, p operator.DeliveryProgress) error {
	if b.during != nil {
		b.during()
	}
	if b.refuses {
		return errors.New("the API server is away")
	}
	b.writes++
	st := &b.fault.Status
	if st.SinkDeliveries == nil {
		st.SinkDeliveries = map[string]v1alpha1.DeliveryStatus{}
	}
	for name, d := range p.Sinks {
		if d == nil {
			delete(st.SinkDeliveries, name)
			continue
		}
		st.SinkDeliveries[name] = *d
	}
	if st.LastResendRequest = p.FinishedResend; p.Undelivered >= 0 {
		st.UndeliveredChangeEvents = p.Undelivered
	}
	return nil
}

// tell records an action at a time, like the operator.
func (b *board) tell(action string, at time.Time) {
	st := &b.fault.Status
	if b.box != nil {
		b.box.EnrollMissingSinks(st, at)
	}
	nodefault.AppendRecordOnceAndTrim(st, nodefault.NewRecord(st, changeevent.SourceFaultQuarantine, action, fmt.Sprint(st.LastSequence), at))
}

func newBoard(uid types.UID) *board {
	return &board{fault: &v1alpha1.NodeFault{
		ObjectMeta: metav1.ObjectMeta{Name: node, UID: uid},
		Status:     v1alpha1.NodeFaultStatus{NodeUID: "n1", Session: "s1"},
	}}
}

// A client holds each event until the test answers.
type client struct {
	mu      sync.Mutex
	pending []changeevent.ChangeEvent
	sent    []string // actions in order
	taken   []string
}

func (c *client) SendChangeEvent(_ context.Context, e changeevent.ChangeEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, e)
	c.sent = append(c.sent, e.Action)
}

func (*client) Close() error { return nil }

// answer answers the pending event.
func (c *client) answer(class changeevent.Class) bool {
	c.mu.Lock()
	if len(c.pending) == 0 {
		c.mu.Unlock()
		return false
	}
	e := c.pending[0]
	c.pending = c.pending[1:]
	if class == "" {
		c.taken = append(c.taken, e.Action)
	}
	c.mu.Unlock()
	e.OnDelivery(changeevent.Delivery{ID: e.ID, Class: class})
	return true
}

// A rig is an outbox with one sink or several.
type rig struct {
	*board

	box   *operator.Outbox
	sinks []*client
	woken int
}

func (b *board) open(t interface{ Fatal(...any) }, sinks ...operator.EventSink) *rig {
	return b.openWith(t, operator.OutboxConfig{}, sinks...)
}

// openWith returns an outbox. If it is the first, its sinks were configured before the
// first record.
func (b *board) openWith(t interface{ Fatal(...any) }, cfg operator.OutboxConfig, sinks ...operator.EventSink) *rig {
	if b.box == nil {
		b.fault.Status.SinkDeliveries = map[string]v1alpha1.DeliveryStatus{}
		for _, s := range sinks {
			b.fault.Status.SinkDeliveries[s.Name] = v1alpha1.DeliveryStatus{EnabledAt: &metav1.Time{Time: time.Now()}}
		}
	}
	return b.openAnew(t, cfg, sinks...)
}

// openAnew returns an outbox with a client for each sink, which may be new.
func (b *board) openAnew(t interface{ Fatal(...any) }, cfg operator.OutboxConfig, sinks ...operator.EventSink) *rig {
	r := &rig{board: b}
	for i := range sinks {
		c := &client{}
		sinks[i].Client = c
		r.sinks = append(r.sinks, c)
	}
	r.box = operator.NewOutbox(cfg, sinks, b, newMetrics(t), func(string) { r.woken++ })
	b.box = r.box
	return r
}

func newMetrics(t interface{ Fatal(...any) }) *operator.OutboxMetrics {
	m, err := operator.NewOutboxMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// look reconciles once and returns the requeue delay.
func (r *rig) look(t interface {
	Helper()
	Fatal(...any)
	Context() context.Context
},
) time.Duration {
	t.Helper()
	got, err := r.box.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
	if err != nil && !r.refuses {
		t.Fatal(err)
	}
	return got.RequeueAfter
}

func TestInOrderOneAtATime(t *testing.T) {
	b := newBoard("f1")
	for _, action := range []string{"cordon", "drain-started", "drain-completed"} {
		b.tell(action, time.Now())
	}
	r := b.open(t, operator.EventSink{Name: "pager"})
	for i, want := range []string{"cordon", "drain-started", "drain-completed"} {
		r.look(t)
		r.look(t) // must not send twice
		if got := r.sinks[0].sent; len(got) != i+1 || got[i] != want {
			t.Fatalf("sent %v, want %q as number %d", got, want, i+1)
		}
		if got := b.fault.Status.UndeliveredChangeEvents; i > 0 && got != int32(3-i) {
			t.Errorf("%d are left, want %d", got, 3-i)
		}
		r.sinks[0].answer("")
		if r.woken != i+1 {
			t.Fatalf("an answer woke %d times", r.woken)
		}
	}
	r.look(t)
	if d := b.fault.Status.SinkDeliveries["pager"]; d.ProcessedSequence != 3 || d.LastDeliveredAt == nil || b.fault.Status.UndeliveredChangeEvents != 0 {
		t.Errorf("written: %+v, untold %d", d, b.fault.Status.UndeliveredChangeEvents)
	}
	writes := b.writes
	if after := r.look(t); after != 0 || b.writes != writes {
		t.Errorf("with all told it looks again after %s and has written %d times", after, b.writes-writes)
	}
}

// TestOneWriteForAnAnswer verifies that a prompt response causes one write, and that a
// slow one is shown as pending.
func TestOneWriteForAnAnswer(t *testing.T) {
	for name, slow := range map[string]bool{"Promptly": false, "Slowly": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard("f1")
				b.tell("cordon", time.Now())
				r := b.open(t, operator.EventSink{Name: "pager"})
				after, writes := r.look(t), 1
				if b.writes != 0 || after <= 0 {
					t.Fatalf("before an answer could come, %d were written, and it looks again after %s", b.writes, after)
				}
				if slow {
					writes++
					time.Sleep(after)
					if after := r.look(t); after != 0 || b.fault.Status.UndeliveredChangeEvents != 1 {
						t.Errorf("without an answer %d are left, and it looks again after %s", b.fault.Status.UndeliveredChangeEvents, after)
					}
				}
				r.sinks[0].answer("")
				r.look(t)
				if b.writes != writes || b.fault.Status.UndeliveredChangeEvents != 0 || b.fault.Status.SinkDeliveries["pager"].ProcessedSequence != 1 {
					t.Errorf("%d were written, want %d: %+v, %d are left", b.writes, writes, b.fault.Status.SinkDeliveries, b.fault.Status.UndeliveredChangeEvents)
				}
			})
		})
	}
}

func TestWhatASinkDoes(t *testing.T) {
	for name, test := range map[string]struct {
		reason  string
		class   changeevent.Class
		refused []int64
		waits   bool
	}{
		"takes it":          {reason: "then the next is sent", class: ""},
		"bad request":       {reason: "one that it will never take does not hold up the others", class: changeevent.ClassClientError, refused: []int64{1}},
		"too old":           {reason: "likewise", class: changeevent.ClassExpired, refused: []int64{1}},
		"wrong token":       {reason: "a token is mended some day", class: changeevent.ClassUnauthorized, waits: true},
		"no such cluster":   {reason: "a setting is mended some day", class: changeevent.ClassNotFound, waits: true},
		"is away":           {reason: "it comes back", class: changeevent.ClassConnection, waits: true},
		"the queue is full": {reason: "the record is kept here", class: changeevent.ClassQueueFull, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBoard("f1")
				b.tell("cordon", time.Now())
				b.tell("uncordon", time.Now())
				r := b.open(t, operator.EventSink{Name: "pager"})
				r.look(t)
				r.sinks[0].answer(test.class)
				after := r.look(t)
				want := []string{"cordon", "uncordon"}
				if test.waits {
					want = want[:1]
				}
				if diff := cmp.Diff(want, r.sinks[0].sent); diff != "" {
					t.Errorf("%s (-want +got):\n%s", test.reason, diff)
				}
				d := b.fault.Status.SinkDeliveries["pager"]
				if diff := cmp.Diff(test.refused, d.Rejected); diff != "" {
					t.Errorf("refused (-want +got):\n%s", diff)
				}
				if d.LastError != string(test.class) {
					t.Errorf("says %q, want %q", d.LastError, test.class)
				}
				if test.waits != (after > 0) {
					t.Fatalf("looks again after %s", after)
				}
				if test.waits {
					time.Sleep(after)
					r.look(t)
					r.sinks[0].answer("")
					r.look(t)
					if diff := cmp.Diff([]string{"cordon", "cordon", "uncordon"}, r.sinks[0].sent); diff != "" {
						t.Errorf("when it has come back (-want +got):\n%s", diff)
					}
				}
			})
		})
	}
}

func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard("f1")
		b.tell("cordon", time.Now())
		r := b.open(t, operator.EventSink{Name: "pager"})
		var waits []time.Duration
		for b.fault.Status.SinkDeliveries["pager"].ProcessedSequence == 0 {
			r.look(t)
			if !r.sinks[0].answer(changeevent.ClassServerError) {
				break
			}
			if after := r.look(t); after > 0 {
				waits = append(waits, after)
				time.Sleep(after)
			}
		}
		if waits[0] != time.Second || waits[1] != 2*time.Second || slices.Max(waits) != 5*time.Minute {
			t.Errorf("waits %s, then %s, and %s at most", waits[0], waits[1], slices.Max(waits))
		}
		d := b.fault.Status.SinkDeliveries["pager"]
		if d.LastError != "expired" || !slices.Equal(d.Rejected, []int64{1}) || b.fault.Status.UndeliveredChangeEvents != 0 {
			t.Errorf("after 12 hours: %+v, untold %d", d, b.fault.Status.UndeliveredChangeEvents)
		}
	})
}

func TestSinksDoNotWaitForEachOther(t *testing.T) {
	b := newBoard("f1")
	b.tell("cordon", time.Now())
	b.tell("budget-exhausted", time.Now())
	b.tell("uncordon", time.Now())
	r := b.open(t, operator.EventSink{Name: "hangs"}, operator.EventSink{Name: "pager", Wants: func(a string) bool { return a != "budget-exhausted" }})
	for range 3 {
		r.look(t)
		r.sinks[1].answer("")
	}
	r.look(t)
	if diff := cmp.Diff([]string{"cordon", "uncordon"}, r.sinks[1].taken); diff != "" {
		t.Errorf("one that answers, and does not want all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"cordon"}, r.sinks[0].sent); diff != "" {
		t.Errorf("one that hangs (-want +got):\n%s", diff)
	}
	if got := nodefault.ProcessedByAllSinks(&b.fault.Status); got != 3 && b.fault.Status.UndeliveredChangeEvents != 3 {
		t.Errorf("settled up to %d, untold %d", got, b.fault.Status.UndeliveredChangeEvents)
	}
	again := b.open(t, operator.EventSink{Name: "pager"})
	again.look(t)
	if _, left := b.fault.Status.SinkDeliveries["hangs"]; left {
		t.Error("a sink that is no longer there is waited for")
	}
}

func TestAnotherOfTheSameName(t *testing.T) {
	b := newBoard("f1")
	b.tell("cordon", time.Now())
	r := b.open(t, operator.EventSink{Name: "pager"})
	r.look(t)
	r.sinks[0].answer("")
	r.look(t)
	b.fault = newBoard("f2").fault
	b.tell("terminate-requested", time.Now())
	r.look(t)
	if diff := cmp.Diff([]string{"cordon", "terminate-requested"}, r.sinks[0].sent); diff != "" {
		t.Errorf("a NodeFault that was made anew counts from 1 (-want +got):\n%s", diff)
	}
}

// TestAtLeastOnceInOrder verifies that each record is delivered, in order, regardless of
// responses, crashes and outages of the API server.
func TestAtLeastOnceInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBoard("f1")
		r := b.open(t, operator.EventSink{Name: "pager"})
		var told, taken []string
		flush := func() {
			taken = append(taken, r.sinks[0].taken...)
			r.sinks[0].taken = nil
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"tell", "look", "take", "fail", "die", "outage"}).Draw(t, "what") {
			case "tell":
				if len(told) < 30 {
					action := fmt.Sprintf("a%d", len(told))
					told = append(told, action)
					b.tell(action, time.Now())
				}
			case "look":
				r.look(t)
			case "take":
				r.sinks[0].answer("")
			case "fail":
				if r.sinks[0].answer(changeevent.ClassTimeout) {
					flush()
					r.look(t)
					r = b.open(t, operator.EventSink{Name: "pager"}) // instead of waiting
				}
			case "die":
				flush()
				r = b.open(t, operator.EventSink{Name: "pager"})
			case "outage":
				b.refuses = !b.refuses
			}
		}
		b.refuses = false
		for range 3 * len(told) {
			r.look(t)
			r.sinks[0].answer("")
		}
		r.look(t)
		flush()
		if b.fault.Status.UndeliveredChangeEvents != 0 {
			t.Fatalf("%d are left of %v, taken %v", b.fault.Status.UndeliveredChangeEvents, told, taken)
		}
		next := 0
		for _, a := range taken {
			if next < len(told) && a == told[next] {
				next++
				continue
			}
			if i := slices.Index(told, a); i >= next {
				t.Fatalf("%s came before %s: %v", a, told[next], taken)
			}
		}
		if next != len(told) {
			t.Fatalf("told %v, taken %v", told, taken)
		}
	})
}
