package shard

import (
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/kube/leases/member"
)

// A world has replicas, a store of records, and a network between them, all
// in simulated time. It fails the test when two replicas own the same key.
type world struct {
	t       *rapid.T
	random  *rand.Rand
	now     time.Duration
	queue   events
	ordinal int
	history []string

	records map[string]member.Record
	log     []member.Change
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
	machine *machine
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

// An attempt is one to publish.
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
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 1)), records: map[string]member.Record{}}
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
	r.machine = newMachine(modelTiming, r.name, r.name)
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

func (q events) Len() int      { return len(q) }
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) } //nolint:errcheck // of container/heap
func (q *events) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func (q events) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].ordinal < q[j].ordinal
}

func (w *world) at(when time.Duration, do func()) {
	w.ordinal++
	heap.Push(&w.queue, event{at: max(when, w.now), ordinal: w.ordinal, do: do})
}

// after has a replica do something, when it is not paused any more. The order
// stays.
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

// resume does what came while the replica was paused.
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

// A waiting event happens when its replica goes on.
type waiting struct {
	do    func()
	watch bool
}

// runUntil lets everything happen up to a time.
func (w *world) runUntil(end time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= end {
		e := heap.Pop(&w.queue).(event) //nolint:errcheck // nothing else is in it
		w.now = e.at
		e.do()
	}
	w.now = end
}

// step is one turn of a replica's loop.
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
	m.advance(now)
	if r.published != m.changes {
		r.published = m.changes
		r.holds.set(m.holding())
		r.w.note(r, "owns with %v: %t, waits for %v", m.guard, m.active, m.waiting)
	} else if m.active {
		r.holds.extend(m.until())
	}
	if r.holds.drained() {
		m.settle()
	}
	r.w.check(r)
	todo, wake := m.commands(now)
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

// wake takes the next turn after d, unless another comes first.
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

// delay is how long a message takes.
func (r *replica) delay() time.Duration {
	longest := 30 * time.Millisecond
	if r.w.now < r.slow {
		longest = []time.Duration{300 * time.Millisecond, 2 * time.Second, 6 * time.Second}[r.w.random.IntN(3)]
	}
	return time.Duration(r.w.random.Int64N(int64(longest)))
}

// request carries a command to the store and the answer back.
func (r *replica) request(c command) {
	w := r.w
	answered := false
	answer := func(d time.Duration, written member.Record, err error) {
		r.after(d, func() {
			if answered {
				return
			}
			answered = true
			if c.op != opWrite || err != nil || c.record.State == member.Left {
				w.note(r, "%s %s@%d: %d, %v", c.op, c.record.Name, c.record.Version, written.Version, err)
			}
			r.step(func(now time.Duration) { r.machine.done(now, c, written, err) })
		})
	}
	answer(modelTiming.fence/2, member.Record{}, errModel)
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
				answer(r.delay(), member.Record{}, errModel)
			}
			return
		}
		written, err := w.apply(c)
		if w.now >= r.unreachable {
			answer(r.delay(), written, err)
		}
	})
}

// apply is what the store does.
func (w *world) apply(c command) (member.Record, error) {
	old, ok := w.records[c.record.Name]
	switch {
	case !ok && c.record.Version > 0:
		return member.Record{}, member.ErrGone
	case old.Version != c.record.Version:
		return member.Record{}, member.ErrConflict
	}
	w.version++
	if c.op == opRemove {
		delete(w.records, c.record.Name)
		w.tell(member.Change{Version: w.version, Gone: []string{c.record.Name}})
		return member.Record{}, nil
	}
	written := c.record
	written.Version = w.version
	w.records[written.Name] = written
	w.tell(member.Change{Version: w.version, Records: []member.Record{written}})
	return written, nil
}

func (w *world) tell(c member.Change) {
	w.log = append(w.log, c)
	for _, r := range w.replicas {
		r.deliver()
	}
}

// connect begins the watch anew.
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
		all := member.Change{Version: w.version, All: true}
		for _, name := range slices.Sorted(maps.Keys(w.records)) {
			all.Records = append(all.Records, w.records[name])
		}
		r.told, r.delivered = len(w.log), w.now
		r.hear(stream, all)
	}
	w.at(w.now+r.delay(), try)
}

// deliver sends what a watch has not told yet.
func (r *replica) deliver() {
	for r.told >= 0 && r.told < len(r.w.log) {
		r.hear(r.stream, r.w.log[r.told])
		r.told++
	}
}

// hear brings a change to a replica, after all before it.
func (r *replica) hear(stream int, c member.Change) {
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
		r.step(func(now time.Duration) { r.machine.observe(now, c) })
	}})
}

// owners are the replicas that own a key.
func (w *world) owners(key uint64) (names []string) {
	for _, r := range w.replicas {
		if !r.crashed && r.holds.owns(key) {
			names = append(names, r.name)
		}
	}
	return names
}

// check fails the test if a replica owns what another does.
func (w *world) check(r *replica) {
	if r.holds.fenced() {
		return
	}
	for _, key := range w.keys {
		if owners := w.owners(key); len(owners) > 1 && r.holds.owns(key) {
			w.fail("%x is owned by %v", key, owners)
		}
	}
}

// work has a replica try to publish for a while.
func (r *replica) work(until time.Duration) {
	w := r.w
	if w.now >= until {
		return
	}
	key := w.keys[w.random.IntN(len(w.keys))]
	if release, ok := r.holds.acquire(key); ok {
		w.checkAttempts(r, key)
		a := &attempt{key: key, epoch: r.machine.epoch}
		r.attempts = append(r.attempts, a)
		took := time.Duration(w.random.Int64N(int64(100 * time.Millisecond)))
		if w.random.IntN(20) == 0 {
			took = time.Duration(w.random.Int64N(int64(5 * time.Second)))
		}
		r.after(took, func() {
			r.attempts = slices.DeleteFunc(r.attempts, func(o *attempt) bool { return o == a })
			release()
			select {
			case <-r.holds.released:
				r.step(func(time.Duration) {})
			default:
			}
		})
	}
	r.after(time.Duration(w.random.Int64N(int64(200*time.Millisecond))), func() { r.work(until) })
}

// checkAttempts fails the test if somebody has an attempt under way for a key
// that r has just acquired, unless that one's time has run out since.
func (w *world) checkAttempts(r *replica, key uint64) {
	for _, o := range w.replicas {
		if o == r || o.crashed {
			continue
		}
		for _, a := range o.attempts {
			if a.key == key && a.epoch == o.machine.epoch && o.clock() < o.machine.until() {
				w.fail("%s acquires %x for which %s has an attempt under way", r.name, key, o.name)
			}
		}
	}
}

func (w *world) living() (list []*replica) {
	for _, r := range w.replicas {
		if !r.crashed && !r.machine.leaving {
			list = append(list, r)
		}
	}
	return list
}

// strike makes something go wrong, or come or go.
func (w *world) strike(kind, who int, lasts, work time.Duration) {
	living := w.living()
	if kind == 0 || len(living) == 0 {
		if len(w.replicas) < 9 {
			w.join().work(work)
		}
		return
	}
	r := living[who%len(living)]
	end := w.now + lasts
	switch kind {
	case 1:
		w.note(r, "crashes")
		r.crashed = true
	case 2:
		r.leave()
	case 3, 4:
		w.note(r, "is paused for %s", lasts)
		r.paused = max(r.paused, end)
	case 5:
		w.note(r, "is unreachable for %s", lasts)
		r.unreachable = max(r.unreachable, end)
	case 6:
		w.note(r, "is slow for %s", lasts)
		r.slow = max(r.slow, end)
	case 7:
		w.note(r, "hears nothing for %s", lasts)
		r.stalled = max(r.stalled, end)
	case 8:
		w.note(r, "and all others find no API for %s", lasts)
		w.outage, w.refuses = max(w.outage, end), who%2 == 0
	}
}

func (r *replica) leave() {
	r.w.note(r, "leaves")
	r.after(0, func() { r.step(func(time.Duration) { r.machine.leave() }) })
}

// wantOwners fails the test unless every key has one owner, of as many
// replicas as are there.
func (w *world) wantOwners(when string) {
	want := w.living()
	if len(want) == 0 {
		return
	}
	for _, key := range w.keys {
		if owners := w.owners(key); len(owners) != 1 {
			w.fail("%s, %x is owned by %v", when, key, owners)
		}
	}
	for _, r := range want {
		if !r.machine.active || len(r.machine.guard) != len(want)-1 {
			w.fail("%s, %s counts %v in and is active: %t, of %d", when, r.name, r.machine.guard, r.machine.active, len(want))
		}
	}
}

func TestNeverTwoOwners(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const stormy = 60 * time.Second
		w := newWorld(t)
		all := stormy + 120*time.Second
		for range rapid.IntRange(1, 5).Draw(t, "replicas") {
			w.join().work(all)
		}
		for range rapid.IntRange(0, 25).Draw(t, "faults") {
			kind, who := rapid.IntRange(0, 8).Draw(t, "kind"), rapid.IntRange(0, 8).Draw(t, "who")
			lasts := time.Duration(rapid.OneOf(rapid.IntRange(1, 250), rapid.IntRange(75, 125)).Draw(t, "lasts")) * 100 * time.Millisecond
			at := time.Duration(rapid.IntRange(0, int(stormy/time.Millisecond)).Draw(t, "at")) * time.Millisecond
			w.at(at, func() { w.strike(kind, who, min(lasts, stormy-w.now), all) })
		}
		w.runUntil(stormy)

		// A crash at the end of the storm may have been seen at once, and a
		// request of the storm may last for a while.
		w.runUntil(w.now + 15*time.Second)
		w.wantOwners("15 s after the storm")

		soon := 6 * time.Second // attempts take up to 5 s
		if len(w.living()) == 0 {
			soon = 12 * time.Second // nobody was there to see who is lost
		}
		w.join().work(all)
		w.runUntil(w.now + soon)
		w.wantOwners("after a join")

		w.strike(1, 0, 0, all)
		w.runUntil(w.now + 12*time.Second)
		w.wantOwners("after a crash")

		if living := w.living(); len(living) > 0 {
			living[0].leave()
		}
		w.runUntil(w.now + 6*time.Second)
		w.wantOwners("after one has left")
	})
}

// TestHandsOverQuickly is about a network and processes without faults.
func TestHandsOverQuickly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 6).Draw(t, "replicas") {
			w.join()
		}
		settle := func(d time.Duration, when string) {
			w.runUntil(w.now + d)
			w.wantOwners(when)
			w.runUntil(w.now + time.Duration(rapid.IntRange(0, 30_000).Draw(t, "until next"))*time.Millisecond)
			w.wantOwners("later")
		}
		settle(500*time.Millisecond, "after the start")
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			switch living := w.living(); rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				w.join()
				settle(500*time.Millisecond, "after a join")
			case 1:
				if len(living) > 1 {
					living[0].leave()
					settle(500*time.Millisecond, "after one has left")
				}
			case 2:
				if len(living) > 1 {
					w.strike(1, 0, 0, 0)
					settle(11*time.Second, "after a crash") // its clock may be 5 % slow
				}
			}
		}
	})
}
