package shard

import (
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// A world has replicas, a store of records, and a network between them, all in simulated time. It
// fails the test if two replicas own the same key.
type world struct {
	t       *rapid.T
	random  *rand.Rand
	now     time.Duration
	queue   events
	ordinal int
	history []string

	records map[string]Record
	log     []LeaseChange
	version uint64

	replicas []*replica
	keys     []uint64

	outage  time.Duration // until when the API answers nobody
	refuses bool          // it says so at once
}

// A replica is one process.
type replica struct {
	w       *world
	name    string
	machine *membership
	holds   *holdings
	offset  time.Duration // of its clock
	rate    float64

	crashed     bool
	paused      time.Duration // until when it does nothing
	unreachable time.Duration // until when its requests are lost
	slow        time.Duration // until when its requests take long
	stalled     time.Duration // until when its watch tells nothing

	read      time.Duration // the last time that it read
	published uint64
	waking    time.Duration
	stream    int // the number of its watch
	told      int // up to where in the log
	delivered time.Duration
	attempts  []*attempt
	backlog   []waiting // what came while it was paused
}

// An attempt is an attempt to publish.
type attempt struct {
	key   uint64
	epoch uint64
}

var modelTiming = timing{
	lease: 10 * time.Second, fence: 8 * time.Second, renew: 2 * time.Second, retry: 500 * time.Millisecond, collect: 40 * time.Second,
}

var errModel = errors.New("no answer")

func newWorld(t *rapid.T) *world {
	seed := rapid.Uint64().Draw(t, "seed")
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 1)), records: map[string]Record{}}
	for range 16 {
		w.keys = append(w.keys, w.random.Uint64())
	}
	return w
}

// join starts a replica.
func (w *world) join() *replica {
	r := &replica{
		w: w, name: fmt.Sprint("r", len(w.replicas)),
		offset: time.Duration(w.random.Int64N(int64(time.Hour))), rate: 0.95 + w.random.Float64()/10,
	}
	r.machine = newMembership(modelTiming, r.name, r.name)
	r.holds = newHoldings(r.clock)
	w.replicas = append(w.replicas, r)
	w.note(r, "joins")
	r.machine.heard = r.clock() // as a process's clock begins with it
	r.connect()
	r.step(func(time.Duration) {})
	return r
}

func (r *replica) clock() time.Duration {
	return r.offset + time.Duration(float64(r.w.now)*r.rate)
}

func (w *world) note(r *replica, what string, args ...any) {
	w.history = append(w.history, fmt.Sprintf("%7.3f %s/%d %s", w.now.Seconds(), r.name, r.machine.epoch, fmt.Sprintf(what, args...)))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nat %s, after\n%s", fmt.Sprintf(format, args...), w.now, strings.Join(w.history[max(0, len(w.history)-200):], "\n"))
}

// An event happens at a time.
type event struct {
	at      time.Duration
	ordinal int
	do      func()
}

type events []event

func (q *events) Len() int      { return len(*q) }
func (q *events) Swap(i, j int) { (*q)[i], (*q)[j] = (*q)[j], (*q)[i] }
func (q *events) Push(x any)    { *q = append(*q, x.(event)) } //nolint:errcheck // of container/heap
func (q *events) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func (q *events) Less(i, j int) bool {
	a, b := (*q)[i], (*q)[j]
	if a.at != b.at {
		return a.at < b.at
	}
	return a.ordinal < b.ordinal
}

func (w *world) at(when time.Duration, do func()) {
	w.ordinal++
	heap.Push(&w.queue, event{at: max(when, w.now), ordinal: w.ordinal, do: do})
}

// after runs a function in a replica, once the replica is not paused. The order is kept.
func (r *replica) after(d time.Duration, do func()) { r.schedule(d, waiting{do: do}) }

func (r *replica) schedule(d time.Duration, e waiting) {
	r.w.at(r.w.now+d, func() {
		if r.w.now >= r.paused && len(r.backlog) == 0 {
			r.do(e.do)
			return
		}
		r.backlog = append(r.backlog, e)
		if len(r.backlog) == 1 {
			r.w.at(r.paused, r.resume)
		}
	})
}

func (r *replica) do(what func()) {
	if !r.crashed {
		what()
	}
}

// resume runs the events that arrived while the replica was paused.
func (r *replica) resume() {
	if r.w.now < r.paused {
		r.w.at(r.paused, r.resume)
		return
	}
	backlog := r.backlog
	r.backlog = nil
	var told, others []waiting
	for _, e := range backlog {
		if e.watch {
			told = append(told, e)
		} else {
			others = append(others, e)
		}
	}
	// Only the watch has an order.
	r.w.random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	for len(told)+len(others) > 0 {
		from := &told
		if r.w.random.IntN(len(told)+len(others)) >= len(told) {
			from = &others
		}
		r.do((*from)[0].do)
		*from = (*from)[1:]
	}
}

// A waiting event happens when its replica resumes.
type waiting struct {
	do    func()
	watch bool
}

// runUntil runs the simulation up to a time.
func (w *world) runUntil(end time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= end {
		e := heap.Pop(&w.queue).(event) //nolint:errcheck // nothing else is in it
		w.now = e.at
		e.do()
	}
	w.now = end
}

// step runs one turn of a replica's loop.
func (r *replica) step(input func(now time.Duration)) {
	// The clock may have been read a while before what follows from it is
	// done: the process was paused in between.
	now := r.clock()
	if r.w.random.IntN(50) == 0 && r.read > 0 {
		now -= time.Duration(r.w.random.Int64N(int64(now-r.read) + 1))
	}
	r.read = now
	m := r.machine
	input(now)
	m.updateOwnership(now)
	if r.published != m.changes {
		r.published = m.changes
		r.holds.setHoldingAndNotify(m.currentHolding())
		r.w.note(r, "owns with %v: %t, waits for %v", m.guard, m.active, m.waiting)
	} else if m.active {
		r.holds.extendUntil(m.holdingExpiry())
	}
	if r.holds.hasNoAttemptOutsideShare() {
		m.recordDrained()
	}
	r.w.check(r)
	todo, wake := m.takeDueCommands(now)
	if m.finished {
		if len(r.attempts) > 0 {
			r.w.fail("%s has left with attempts under way", r.name)
		}
		r.crashed = true
		r.w.note(r, "has left")
		return
	}
	for _, c := range todo {
		if c.op == opRewatch {
			r.connect()
			continue
		}
		// It may be paused before the request leaves it.
		r.after(0, func() { r.request(c) })
	}
	r.wake(max(wake-now, time.Millisecond))
}

// wake runs the next turn after d, unless another comes first.
func (r *replica) wake(d time.Duration) {
	if d > time.Hour {
		return
	}
	at := r.w.now + time.Duration(float64(d)/r.rate) + 1
	if r.waking > r.w.now && r.waking <= at {
		return
	}
	r.waking = at
	r.after(at-r.w.now, func() { r.step(func(time.Duration) {}) })
}

// delay returns the delay of a message.
func (r *replica) delay() time.Duration {
	longest := 30 * time.Millisecond
	if r.w.now < r.slow {
		longest = []time.Duration{300 * time.Millisecond, 2 * time.Second, 6 * time.Second}[r.w.random.IntN(3)]
	}
	return time.Duration(r.w.random.Int64N(int64(longest)))
}

// request sends a command to the store and returns the response.
func (r *replica) request(c command) {
	w := r.w
	answered := false
	answer := func(d time.Duration, written Record, err error) {
		r.after(d, func() {
			if answered {
				return
			}
			answered = true
			if c.op != opWrite || err != nil || c.record.State == Left {
				w.note(r, "%s %s@%d: %d, %v", c.op, c.record.Name, c.record.Version, written.Version, err)
			}
			r.step(func(now time.Duration) { r.machine.processCommandResult(now, c, written, err) })
		})
	}
	answer(modelTiming.fence/2, Record{}, errModel)
	if w.now < r.unreachable {
		if w.random.IntN(2) == 0 { // as after a broken connection: it may have arrived, or still does
			w.at(w.now+time.Duration(w.random.Int64N(int64(4*time.Second))), func() {
				if w.now >= w.outage {
					_, _ = w.apply(c)
				}
			})
		}
		return
	}
	w.at(w.now+r.delay(), func() {
		if w.now < w.outage {
			if w.refuses {
				answer(r.delay(), Record{}, errModel)
			}
			return
		}
		written, err := w.apply(c)
		if w.now >= r.unreachable {
			answer(r.delay(), written, err)
		}
	})
}

// apply runs a command in the store.
func (w *world) apply(c command) (Record, error) {
	old, ok := w.records[c.record.Name]
	switch {
	case !ok && c.record.Version > 0 && w.random.IntN(2) == 0:
		return Record{}, ErrGone
	case old.Version != c.record.Version:
		return Record{}, ErrConflict
	}
	w.version++
	if c.op == opRemove {
		delete(w.records, c.record.Name)
		w.tell(LeaseChange{Version: w.version, Gone: []string{c.record.Name}})
		return Record{}, nil
	}
	written := c.record
	written.Version = w.version
	w.records[written.Name] = written
	w.tell(LeaseChange{Version: w.version, Records: []Record{written}})
	return written, nil
}

func (w *world) tell(c LeaseChange) {
	w.log = append(w.log, c)
	for _, r := range w.replicas {
		r.deliver()
	}
}

// connect restarts the watch.
func (r *replica) connect() {
	r.stream++
	stream := r.stream
	r.told = -1
	w := r.w
	var try func()
	try = func() {
		switch {
		case r.stream != stream || r.crashed:
			return
		case w.now < w.outage || w.now < r.unreachable:
			w.at(w.now+time.Second, try)
			return
		}
		all := LeaseChange{Version: w.version, All: true}
		for _, name := range slices.Sorted(maps.Keys(w.records)) {
			all.Records = append(all.Records, w.records[name])
		}
		r.told, r.delivered = len(w.log), w.now
		r.hear(stream, all)
	}
	w.at(w.now+r.delay(), try)
}

// deliver sends the changes that a watch has not delivered yet.
func (r *replica) deliver() {
	for r.told >= 0 && r.told < len(r.w.log) {
		r.hear(r.stream, r.w.log[r.told])
		r.told++
	}
}

// hear delivers a change to a replica, after all earlier ones.
func (r *replica) hear(stream int, c LeaseChange) {
	w := r.w
	r.delivered = max(r.delivered, w.now+r.delay(), r.stalled)
	r.schedule(r.delivered-w.now, waiting{watch: true, do: func() {
		if r.stream != stream {
			return
		}
		if w.now < w.outage || w.now < r.unreachable {
			r.connect() // it broke
			return
		}
		r.step(func(now time.Duration) { r.machine.observeLeaseChange(now, c) })
	}})
}
