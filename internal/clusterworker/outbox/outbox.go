// Package outbox tells sinks what was done to Shoots, at least once.
//
// The store keeps a change for each sink from the statement that makes it until
// the sink has taken it. An Outbox takes those that are due, of each cluster and
// sink the oldest alone, and hands them to the clients. A sink that is away, and a
// process that is killed, delay a change, and may repeat it with the same id;
// order holds for each cluster and sink. No sink waits for another: each has room of
// its own. A change that a sink refuses for what is in it, or that has grown too old,
// is given up and counted, whether or not its sink is still configured.
package outbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

const (
	// MaxAge is how long a change is kept for a sink that does not take it.
	MaxAge = 12 * time.Hour

	lease       = 2 * time.Minute  // of a change that is being sent
	renewEvery  = 30 * time.Second // well within it
	askEvery    = 5 * time.Second  // for what other processes have left behind
	expireEvery = time.Minute
	mostAtATime = 256                    // changes of a sink that are being sent
	mostExpired = 5000                   // changes that are removed by one statement
	breath      = 100 * time.Millisecond // between two rounds, so that many answers are one round
	slack       = 2 * time.Second        // for what ends between Run and the clients
	lastWords   = 2 * time.Second        // for what is due when the process ends
	callTimeout = 10 * time.Second
)

// A Pending is a change that a sink has not taken yet.
type Pending struct {
	Seq      int64
	Sink     string
	Change   clusterworker.Change
	Failures int
}

// A Store keeps what is pending. An error of it is one of the database.
type Store interface {
	// ClaimChanges takes changes for a sink for the time of a lease, of each cluster
	// the oldest alone.
	ClaimChanges(ctx context.Context, sink string, most int, lease time.Duration) ([]Pending, error)
	// RenewChanges has leases end so long from now.
	RenewChanges(ctx context.Context, seqs []int64, lease time.Duration) error
	// RemoveChanges removes what needs nothing more.
	RemoveChanges(ctx context.Context, seqs []int64) error
	// PutOffChanges counts a failure of changes and makes each due again after its
	// delay.
	PutOffChanges(ctx context.Context, delays map[int64]time.Duration) error
	// ExpireChanges removes what is older and nobody is sending, so many at most, and
	// gives how many those were.
	ExpireChanges(ctx context.Context, age time.Duration, most int) (int, error)
}

// A Sink is one that is told.
type Sink struct {
	Name string
	// Client sends to it. Nil is a sink that cannot work with its settings: its
	// changes wait until they are mended, or are too old.
	Client changeevent.Client
}

// Deps are what an Outbox works with.
type Deps struct {
	Store Store
	Sinks []Sink
	// Event makes the event of a change; the same change has the same id.
	Event func(clusterworker.Change) changeevent.ChangeEvent
	// Closing is how long clients may still send after Run has returned. What they
	// have then is not sent by another process before.
	Closing    time.Duration
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// An Outbox tells sinks. Make it with New and call Run once.
type Outbox struct {
	deps  Deps
	sinks []Sink // those that have a client
	wake  chan struct{}

	givenUp *prometheus.CounterVec
	sending prometheus.Gauge

	mu       sync.Mutex
	answered []answer

	inFlight map[int64]Pending // of Run alone
}

// An answer is what became of a change.
type answer struct {
	seq      int64
	delivery changeevent.Delivery
}

// New makes an Outbox. It starts nothing.
func New(deps Deps) (*Outbox, error) {
	o := &Outbox{
		deps: deps, wake: make(chan struct{}, 1), inFlight: map[int64]Pending{},
		givenUp: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetloop_clusterworker_change_events_undeliverable_total",
			Help: "Total number of change events that the cluster-worker dropped without delivery to a sink, by error: the sink rejected the content, or the event expired.",
		}, []string{"error"}),
		sending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetloop_clusterworker_change_events_in_flight",
			Help: "Number of change events that this cluster-worker has sent and that no sink has acknowledged yet.",
		}),
	}
	for _, s := range deps.Sinks {
		if s.Client != nil {
			o.sinks = append(o.sinks, s)
		}
	}
	if err := deps.Registerer.Register(o.givenUp); err != nil {
		return nil, err
	}
	return o, deps.Registerer.Register(o.sending)
}

// Nudge has the store asked now. It never blocks.
func (o *Outbox) Nudge() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run tells sinks until ctx ends, and then what is due, for some seconds. What is
// left is told by the next process.
func (o *Outbox) Run(ctx context.Context) error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	var renewed, expired time.Time
	for ctx.Err() == nil {
		now := time.Now()
		if now.Sub(expired) >= expireEvery {
			expired = now
			o.dropExpired(ctx)
		}
		if now.Sub(renewed) >= renewEvery {
			renewed = now
			o.renewLeases(ctx, lease)
		}
		o.runOnce(ctx)
		_ = backoff.Sleep(ctx, breath) // the end of ctx is seen below
		select {
		case <-ctx.Done():
		case <-o.wake:
		case <-tick.C:
		}
	}
	o.sendUntilEmpty(context.WithoutCancel(ctx))
	return nil
}

// sendUntilEmpty tells what is due, as long as sinks take it, and leaves the rest for
// another process.
func (o *Outbox) sendUntilEmpty(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	for (o.runOnce(ctx) || len(o.inFlight) > 0) && backoff.Sleep(ctx, breath) == nil {
		select {
		case <-o.wake:
		case <-ctx.Done():
		}
	}
	rest, stop := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer stop()
	o.saveAnswers(rest)
	o.renewLeases(rest, o.deps.Closing+slack)
	if n := len(o.inFlight); n > 0 {
		o.deps.Log.WarnContext(rest, "change events not delivered before shutdown, retained in database", "count", n)
	}
}

// runOnce settles what was answered and sends what is due. It reports whether there
// was anything to send.
func (o *Outbox) runOnce(ctx context.Context) (sent bool) {
	o.saveAnswers(ctx)
	under := map[string]int{}
	for _, p := range o.inFlight {
		under[p.Sink]++
	}
	for _, s := range o.sinks {
		if room := mostAtATime - under[s.Name]; room > 0 && o.fillSink(ctx, s, room) {
			sent = true
		}
	}
	o.sending.Set(float64(len(o.inFlight)))
	return sent
}

// fillSink sends to one sink what is due, as much as there is room for.
func (o *Outbox) fillSink(ctx context.Context, s Sink, room int) bool {
	var due []Pending
	// If it fails there is nothing to send.
	_ = o.askStore(ctx, "claim due change events", func(ctx context.Context) (err error) {
		due, err = o.deps.Store.ClaimChanges(ctx, s.Name, room, lease)
		return err
	})
	for _, p := range due {
		o.sendToSink(ctx, s, p)
	}
	return len(due) > 0
}

// sendToSink hands a change to the client of its sink, which calls back once.
func (o *Outbox) sendToSink(ctx context.Context, s Sink, p Pending) {
	if _, ok := o.inFlight[p.Seq]; ok {
		return // its lease could not be renewed in time, and the client still has it
	}
	o.inFlight[p.Seq] = p
	e := o.deps.Event(p.Change)
	e.OnDelivery = func(d changeevent.Delivery) {
		o.mu.Lock()
		o.answered = append(o.answered, answer{p.Seq, d})
		o.mu.Unlock()
		o.Nudge()
	}
	s.Client.SendChangeEvent(ctx, e)
}

// saveAnswers writes down what was answered.
func (o *Outbox) saveAnswers(ctx context.Context) {
	o.mu.Lock()
	answered := o.answered
	o.answered = nil
	o.mu.Unlock()
	var done []int64
	failed := map[int64]time.Duration{}
	for _, a := range answered {
		p := o.inFlight[a.seq]
		delete(o.inFlight, a.seq)
		class := a.delivery.Class
		if class != "" && !isFinal(class) && time.Since(p.Change.At) > MaxAge {
			class = changeevent.ClassExpired
		}
		switch {
		case class == "":
			done = append(done, a.seq)
		case isFinal(class):
			o.givenUp.WithLabelValues(string(class)).Inc()
			done = append(done, a.seq)
		default:
			failed[a.seq] = backoff.Policy{Initial: askEvery, Max: 5 * time.Minute, Jitter: -1}.Delay(p.Failures)
		}
	}
	if len(done) > 0 {
		// If it fails they are sent again when their leases end, with the same ids.
		_ = o.askStore(ctx, "delete delivered change events", func(ctx context.Context) error { return o.deps.Store.RemoveChanges(ctx, done) })
	}
	if len(failed) > 0 {
		_ = o.askStore(ctx, "reschedule change events", func(ctx context.Context) error { return o.deps.Store.PutOffChanges(ctx, failed) })
	}
	o.sending.Set(float64(len(o.inFlight)))
}

// isFinal says that an event would fare no better later, and that those behind it
// would wait for ever. All else is of the sink or of the way there.
func isFinal(c changeevent.Class) bool {
	return c == changeevent.ClassClientError || c == changeevent.ClassEncode || c == changeevent.ClassExpired
}

// renewLeases keeps the leases of what a client has: it may wait for a sink for long.
func (o *Outbox) renewLeases(ctx context.Context, lease time.Duration) {
	if len(o.inFlight) == 0 {
		return
	}
	seqs := make([]int64, 0, len(o.inFlight))
	for seq := range o.inFlight {
		seqs = append(seqs, seq)
	}
	_ = o.askStore(ctx, "renew leases of change events", func(ctx context.Context) error { return o.deps.Store.RenewChanges(ctx, seqs, lease) })
}

// dropExpired gives up what nobody wants to hear any more.
func (o *Outbox) dropExpired(ctx context.Context) {
	for n := mostExpired; n == mostExpired; {
		n = 0
		// What is left after an error is removed the next time.
		_ = o.askStore(ctx, "delete expired change events", func(ctx context.Context) (err error) {
			n, err = o.deps.Store.ExpireChanges(ctx, MaxAge, mostExpired)
			return err
		})
		if n > 0 {
			o.givenUp.WithLabelValues(string(changeevent.ClassExpired)).Add(float64(n))
			o.deps.Log.ErrorContext(ctx, "change events dropped, not delivered within maximum age", "count", n, "age", MaxAge)
		}
	}
}

// askStore asks the store once. What fails is tried again in a later round.
func (o *Outbox) askStore(ctx context.Context, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := do(ctx)
	if err != nil && ctx.Err() == nil {
		o.deps.Log.WarnContext(ctx, "change event outbox: database request failed, retrying", "what", what, "err", err)
	}
	return err
}
