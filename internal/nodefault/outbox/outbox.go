// Package outbox has every change event of a node told: NodeFault.status.history
// is what is to be told, and status.delivered how far each sink is.
//
// A sink gets the records of one node one after the other, the next when the
// last is settled: taken, refused for good, or too old. So their order holds,
// and a process that dies repeats at most the one whose answer it did not get to
// write down. Nodes do not wait for each other, nor sinks.
//
// A sink is owed what is done from the moment on that it is configured, whether
// or not it can work: its place in status.delivered is made with the first record
// that it is owed. One that is no longer configured loses its place.
package outbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// A Sink is told.
type Sink struct {
	// Name is its key in status.delivered.
	Name string
	// Client sends to it. It tries each event once and leaves it to the outbox to
	// send it again. Nil is a sink that cannot work with its settings: its records
	// wait until they are mended.
	Client changeevent.Client
	// Wants says which actions it is told of. Nil is all.
	Wants func(action string) bool
	// Replay has a sink without a place begin with what is still kept, in the
	// place of what is done from now on.
	Replay bool
}

func (s Sink) wantsAction(action string) bool { return s.Wants == nil || s.Wants(action) }

// Config says how patient an outbox is.
type Config struct {
	// MaxAge is how old a record may grow: one that is older is not told. Zero
	// is 12 h, because nobody on call wants older news, and sinks refuse them.
	MaxAge time.Duration
	// Retry is how long after a failure a record is sent again at first, and
	// MaxRetry at most. The client leaves a sink alone that asks for it. Zero is 1 s and 5 min.
	Retry, MaxRetry time.Duration
	// Drain is how long the end waits for answers. Zero is 10 s.
	Drain time.Duration
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{{&c.MaxAge, 12 * time.Hour}, {&c.Retry, time.Second}, {&c.MaxRetry, 5 * time.Minute}, {&c.Drain, changeevent.DefaultShutdownTimeout}} {
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	return c
}

// prompt is how long an answer may take before it is written down that it is
// waited for. Most come sooner, and then what was answered is all that is written.
const prompt = 2 * time.Second

// errorUnusable is why a sink takes nothing that cannot work with its settings.
const errorUnusable = "invalid_sink"

// errorDropped is why records are not told of which too many waited.
const errorDropped = "queue_full"

// maxRefused is how many refused records are remembered of a sink.
const maxRefused = 16

// Faults are the NodeFaults.
type Faults interface {
	// Get reads one as it was last told; nil is none.
	Get(ctx context.Context, name string) (*v1alpha1.NodeFault, error)
	// Delivered writes how far sinks are: fields of the status that nobody else
	// writes. A nil DeliveryStatus takes a sink away.
	Delivered(ctx context.Context, f *v1alpha1.NodeFault, progress Progress) error
}

// Progress is what an outbox writes.
type Progress struct {
	Sinks map[string]*v1alpha1.DeliveryStatus
	// Untold is how many records wait; below zero leaves it as it is.
	Untold int32
	Resent string
}

// An Outbox is a reconciler of NodeFaults.
type Outbox struct {
	cfg     Config
	sinks   []Sink
	faults  Faults
	metrics *Metrics
	now     func() time.Time
	wake    func(name string)

	mu      sync.Mutex
	lines   map[line]*state
	ending  bool          // nothing more is sent
	settled chan struct{} // has a token when something was answered while ending
}

// A line is what one sink is told of one node.
type line struct{ node, sink string }

// A state is what is known of a line beyond what is written.
type state struct {
	uid      types.UID
	latest   *v1alpha1.DeliveryStatus // what was written last, or is to be
	inFlight int64                    // the record that the client has; 0 is none
	sent     time.Time                // when it got it
	answered *changeevent.Delivery
	failures int       // in a row, of the record that is next
	next     time.Time // when it is tried again

	asked string  // the value of the annotation that has refused ones sent again
	again []int64 // those that have still to be
}

// New makes an outbox. wake has a NodeFault reconciled.
func New(cfg Config, sinks []Sink, faults Faults, metrics *Metrics, wake func(name string)) *Outbox {
	return &Outbox{cfg: cfg.withDefaults(), sinks: sinks, faults: faults, metrics: metrics, now: time.Now, wake: wake, lines: map[line]*state{}, settled: make(chan struct{}, 1)}
}

// Enroll makes a place for each sink that has none. It is called before records
// are added, so that a sink is owed what is done from then on.
func (o *Outbox) Enroll(st *v1alpha1.NodeFaultStatus, now time.Time) {
	before := *st
	st.SinkDeliveries = maps.Clone(st.SinkDeliveries)
	for _, s := range o.sinks {
		if _, is := st.SinkDeliveries[s.Name]; is {
			continue
		}
		if st.SinkDeliveries == nil {
			st.SinkDeliveries = map[string]v1alpha1.DeliveryStatus{}
		}
		st.SinkDeliveries[s.Name] = o.startPosition(&before, s, now)
	}
}

// startPosition is where a sink begins that has no place yet.
func (o *Outbox) startPosition(st *v1alpha1.NodeFaultStatus, s Sink, now time.Time) v1alpha1.DeliveryStatus {
	d := v1alpha1.DeliveryStatus{ProcessedSequence: st.LastSequence, EnabledAt: &metav1.Time{Time: now}}
	first := st.LastSequence + 1
	switch {
	case s.Replay:
		first = 0
	case !slices.ContainsFunc(slices.Collect(maps.Values(st.SinkDeliveries)), hasPlace):
		// An earlier release gave no place to a sink that had taken nothing yet.
		// Untold was how many records waited.
		first -= int64(st.UndeliveredChangeEvents)
	}
	for i := range st.History {
		if r := &st.History[i]; r.Sequence >= first && now.Sub(r.At.Time) <= o.cfg.MaxAge {
			d.ProcessedSequence, d.EnabledAt = r.Sequence-1, &metav1.Time{Time: r.At.Time}
			break
		}
	}
	return d
}

// hasPlace says that a sink was given a place, and is not of before there were any.
func hasPlace(d v1alpha1.DeliveryStatus) bool { return d.EnabledAt != nil }

// Reconcile sends what is next, and writes down what was answered.
func (o *Outbox) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	f, err := o.faults.Get(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read NodeFault %q: %w", req.Name, err)
	}
	if f == nil {
		o.forgetNode(req.Name)
		return reconcile.Result{}, nil
	}
	p, after := o.advanceSinks(ctx, f, o.now())
	if len(p.Sinks) > 0 || p.Untold != f.Status.UndeliveredChangeEvents || p.Resent != f.Status.LastResendRequest {
		// What a sink has answered is written down also while the process ends.
		if err := o.faults.Delivered(context.WithoutCancel(ctx), f, p); err != nil {
			return reconcile.Result{}, fmt.Errorf("write delivery state of NodeFault %q: %w", f.Name, err)
		}
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// advanceSinks brings all sinks on, and gives what is to be written and when to look
// again.
func (o *Outbox) advanceSinks(ctx context.Context, f *v1alpha1.NodeFault, now time.Time) (p Progress, after time.Duration) {
	p = Progress{Sinks: map[string]*v1alpha1.DeliveryStatus{}, Resent: f.Status.LastResendRequest}
	for name := range f.Status.SinkDeliveries {
		if !slices.ContainsFunc(o.sinks, func(s Sink) bool { return s.Name == name }) {
			p.Sinks[name] = nil // it is told no more, and must not be waited for
		}
	}
	done, expected := true, prompt
	for _, s := range o.sinks {
		before, known := f.Status.SinkDeliveries[s.Name]
		if !known && f.Status.LastSequence == 0 {
			continue // it gets its place with the first record
		}
		d, wait, left := o.advanceSink(ctx, f, s, now)
		after = soonerOf(after, wait)
		if left > 0 {
			expected = min(expected, o.promptWait(line{f.Name, s.Name}, now))
		}
		done = done && !o.retriesRefused(line{f.Name, s.Name})
		p.Untold = max(p.Untold, left)
		if known && equalStatus(before, d) {
			continue
		}
		p.Sinks[s.Name] = &d
	}
	if again := f.Annotations[v1alpha1.AnnotationResend]; again != "" && done {
		p.Resent = again
	}
	o.metrics.setUndelivered(f.Name, p.Untold)
	if p.Untold > f.Status.UndeliveredChangeEvents && len(p.Sinks) == 0 && expected > 0 {
		p.Untold, after = f.Status.UndeliveredChangeEvents, soonerOf(after, expected)
	}
	return p, after
}

// soonerOf is the first of two waits; 0 is none.
func soonerOf(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// equalStatus says that there is nothing to write.
func equalStatus(a, b v1alpha1.DeliveryStatus) bool {
	return a.ProcessedSequence == b.ProcessedSequence && a.LastError == b.LastError && a.Dropped == b.Dropped && hasPlace(a) == hasPlace(b) && slices.Equal(a.Rejected, b.Rejected)
}

// advanceSink brings a sink on as far as it goes: it takes what was answered and
// hands the next record to the client. It gives how far the sink is, how long to
// wait for the next try (0: the client's answer is what is waited for), and how
// many records are left.
func (o *Outbox) advanceSink(ctx context.Context, f *v1alpha1.NodeFault, s Sink, now time.Time) (d v1alpha1.DeliveryStatus, wait time.Duration, left int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := line{f.Name, s.Name}
	st := o.lines[l]
	if st == nil || st.uid != f.UID {
		st = &state{uid: f.UID}
		o.lines[l] = st
	}
	d, known := f.Status.SinkDeliveries[s.Name]
	switch {
	case !known:
		d = o.startPosition(&f.Status, s, now)
	case !hasPlace(d): // of before there were places
		d.EnabledAt = &metav1.Time{Time: now}
	}
	if st.latest != nil && st.latest.ProcessedSequence >= d.ProcessedSequence { // the cache may be behind
		d = *st.latest
	}
	d.Rejected = slices.Clone(d.Rejected)
	if st.answered != nil {
		o.applyAnswer(st, &d, now)
	}
	if asked := f.Annotations[v1alpha1.AnnotationResend]; asked != "" && asked != f.Status.LastResendRequest && asked != st.asked {
		st.asked, st.again = asked, slices.Clone(d.Rejected)
	}
	if st.inFlight == 0 && !o.ending {
		if wait = st.next.Sub(now); wait <= 0 {
			wait = 0
			o.dropMissing(f, st, &d, now)
			next := o.pickNext(f, s, st, &d, now)
			switch {
			case s.Client == nil:
				wait = o.handleUndeliverable(&d, next, now)
			case next != nil:
				st.inFlight, st.sent = next.Sequence, now
				o.sendRecord(ctx, l, s, *next)
			}
		}
	}
	latest := d
	st.latest = &latest
	left = int32(len(st.again)) //nolint:gosec // at most maxRefused
	for i := range f.Status.History {
		if r := &f.Status.History[i]; r.Sequence > d.ProcessedSequence && s.wantsAction(r.Action) {
			left++
		}
	}
	if left == 0 {
		wait = 0
	}
	return d, wait, left
}

// handleUndeliverable says what becomes of the next record of a sink that cannot work: it waits.
// It gives for how long.
func (o *Outbox) handleUndeliverable(d *v1alpha1.DeliveryStatus, next *v1alpha1.Record, now time.Time) time.Duration {
	switch {
	case next == nil && d.LastError == errorUnusable:
		d.LastError, d.LastFailedAt = "", nil
	case next == nil:
	default:
		if d.LastError != errorUnusable {
			d.LastError, d.LastFailedAt = errorUnusable, &metav1.Time{Time: now}
		}
		return max(next.At.Add(o.cfg.MaxAge).Sub(now), 0) + time.Second // then it is too old
	}
	return 0
}

// dropMissing passes over records that are no longer kept, and counts them.
func (o *Outbox) dropMissing(f *v1alpha1.NodeFault, st *state, d *v1alpha1.DeliveryStatus, now time.Time) {
	kept := f.Status.LastSequence
	if len(f.Status.History) > 0 {
		kept = f.Status.History[0].Sequence - 1
	}
	if n := kept - d.ProcessedSequence; n > 0 {
		d.ProcessedSequence, d.Dropped, d.LastError, d.LastFailedAt = kept, d.Dropped+n, errorDropped, &metav1.Time{Time: now}
		o.metrics.refused.WithLabelValues(errorDropped).Add(float64(n))
		st.failures, st.next = 0, time.Time{}
	}
}

// pickNext gives the record that is next, and passes over those that are not sent.
func (o *Outbox) pickNext(f *v1alpha1.NodeFault, s Sink, st *state, d *v1alpha1.DeliveryStatus, now time.Time) *v1alpha1.Record {
	for len(st.again) > 0 {
		i := slices.IndexFunc(f.Status.History, func(r v1alpha1.Record) bool { return r.Sequence == st.again[0] })
		if i >= 0 {
			return &f.Status.History[i]
		}
		st.again = st.again[1:] // it is no longer kept
	}
	for i := range f.Status.History {
		r := &f.Status.History[i]
		switch {
		case r.Sequence <= d.ProcessedSequence:
		case !s.wantsAction(r.Action):
			d.ProcessedSequence = r.Sequence
		case now.Sub(r.At.Time) > o.cfg.MaxAge:
			o.noteRefused(d, r.Sequence, changeevent.ClassExpired, now)
		default:
			return r
		}
	}
	return nil
}

// promptWait is for how long an answer may still come promptly: 0 if none is waited
// for, or for long.
func (o *Outbox) promptWait(l line, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if st := o.lines[l]; st != nil && st.inFlight != 0 {
		return max(0, prompt-now.Sub(st.sent))
	}
	return 0
}

// retriesRefused says whether refused records are still to be sent again.
func (o *Outbox) retriesRefused(l line) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.lines[l]
	return st != nil && len(st.again) > 0
}

// sendRecord hands a record to the client, which calls back once.
func (o *Outbox) sendRecord(ctx context.Context, l line, s Sink, r v1alpha1.Record) {
	e := Event(l.node, r)
	e.OnDelivery = func(d changeevent.Delivery) {
		o.mu.Lock()
		st := o.lines[l]
		wanted := st != nil && st.inFlight == r.Sequence && d.ID == r.ID
		if wanted {
			st.answered = &d
		}
		ending := o.ending
		o.mu.Unlock()
		switch {
		case !wanted:
		case ending:
			o.wakeDrain()
		default:
			o.wake(l.node)
		}
	}
	// The client may call back before it returns.
	o.mu.Unlock()
	defer o.mu.Lock()
	s.Client.SendChangeEvent(ctx, e)
}

// applyAnswer takes what was answered to the record in flight.
func (o *Outbox) applyAnswer(st *state, d *v1alpha1.DeliveryStatus, now time.Time) {
	a, seq := *st.answered, st.inFlight
	st.answered, st.inFlight = nil, 0
	refused := ofTheEvent(a.Class) || a.Class == changeevent.ClassExpired
	if a.Class != "" && !refused { // what comes next would fare no better, and this one may yet arrive
		d.LastError, d.LastFailedAt = string(a.Class), &metav1.Time{Time: now}
		st.next = now.Add(backoff.Policy{Initial: o.cfg.Retry, Max: o.cfg.MaxRetry, Jitter: -1}.Delay(st.failures))
		st.failures++
		return
	}
	st.failures, st.next = 0, time.Time{}
	// What is sent again is behind what was settled last, whoever has asked for
	// more to be sent again since it was handed over.
	repeated := seq <= d.ProcessedSequence
	st.again = slices.DeleteFunc(st.again, func(s int64) bool { return s == seq })
	switch {
	case refused && repeated:
		d.LastError, d.LastFailedAt = string(a.Class), &metav1.Time{Time: now}
	case refused:
		o.noteRefused(d, seq, a.Class, now)
	default:
		d.ProcessedSequence, d.LastDeliveredAt, d.LastError, d.LastFailedAt = max(d.ProcessedSequence, seq), &metav1.Time{Time: now}, "", nil
		d.Rejected = slices.DeleteFunc(d.Rejected, func(r int64) bool { return r == seq })
	}
}

// ofTheEvent says that a sink would take others. All else is of the sink or of
// the way there: a wrong token or address is mended some day, and what was to
// be told by then is told.
func ofTheEvent(c changeevent.Class) bool {
	return c == changeevent.ClassClientError || c == changeevent.ClassEncode
}

func (o *Outbox) noteRefused(d *v1alpha1.DeliveryStatus, seq int64, c changeevent.Class, now time.Time) {
	d.ProcessedSequence, d.LastError, d.LastFailedAt = seq, string(c), &metav1.Time{Time: now}
	d.Rejected = append(d.Rejected, seq)
	if n := len(d.Rejected); n > maxRefused {
		d.Rejected = d.Rejected[n-maxRefused:]
	}
	o.metrics.refused.WithLabelValues(string(c)).Inc()
}

// forgetNode is for a NodeFault that is gone.
func (o *Outbox) forgetNode(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.sinks {
		delete(o.lines, line{name, s.Name})
	}
	o.metrics.setUndelivered(name, 0)
}
