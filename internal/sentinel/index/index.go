// Package index keeps when each resource is to be looked at again.
//
// A sentinel that follows a change feed does not see the resources that nobody
// changes, and those fall due by age. So it writes down, for each, when that
// will be, and asks now and then whose time has come. There are no timers: the
// times lie packed together and are scanned, which takes less than a
// nanosecond for each, and nothing at all where none is due.
//
// A million resources take about 28 MB. Times are kept in steps of 100 ms,
// rounded up, so that nothing is looked at too early.
//
// Three sources write here and need not agree. A change feed has the newest
// word. A sweep reads pages that may be older than what the feed has said
// meanwhile, and a lookup may be overtaken as well. Where it can not be told
// who is right, the earlier time stands: a look too many costs a request, one
// too few leaves a resource alone.
package index

import (
	"hash/maphash"
	"iter"
	"math"
	"sync"
	"time"
	"unsafe"
)

// resolution is the step of times.
const resolution = 100 * time.Millisecond

// Times count steps from long before the index was made, so that what was due
// then keeps its order.
const (
	birth uint32 = 1 << 28 // 310 days
	last  uint32 = math.MaxUint32 - 1
	never uint32 = math.MaxUint32 // stands in free slots
)

// shards is how many tables there are. They grow one at a time, so that no
// growth is felt.
const shards = 256

// An Index is made with New. It is safe for concurrent use.
type Index struct {
	born  time.Time // carries the monotonic clock, where there is one
	seeds [3]maphash.Seed

	mu     sync.Mutex // not held while a caller's function runs
	shards [shards]shard
	texts  texts
	n      int
	ready  int
	pass   uint8
}

// New makes an empty index. The times that it is given later should be made
// from the same clock: one that an API told becomes ours by
// now.Add(due.Sub(now)), and does not move then when the wall clock is set.
func New(born time.Time) *Index {
	x := &Index{born: born, seeds: [...]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed(), maphash.MakeSeed()}}
	for i := range x.shards {
		x.shards[i].earliest = never
	}
	return x
}

// A Class is what a resource counts as.
type Class uint8

// The classes.
const (
	NotReady Class = iota
	Ready
	// Urgent is looked at before all others that are due.
	Urgent
)

// Put notes the newest word on a resource, as a change feed has it: when to
// look at it again, and what it counts as. A zero due is now.
func (x *Index) Put(id []byte, due time.Time, class Class) {
	k, at := x.keyOf(id), x.dueAt(due)
	x.mu.Lock()
	defer x.mu.Unlock()
	s, i, _ := x.findOrInsert(k, id)
	x.writeEntry(s, i, at, class)
}

// Seen notes what a sweep read of a resource. Of one that another has spoken
// of since the sweep began, only an earlier time counts. A zero due is now.
func (x *Index) Seen(id []byte, due time.Time, class Class, pass uint8) {
	k, at := x.keyOf(id), x.dueAt(due)
	x.mu.Lock()
	defer x.mu.Unlock()
	s, i, found := x.findOrInsert(k, id)
	if found && (pass != x.pass || s.state[i]&touched != 0) {
		s.bringForward(i, at)
		return
	}
	x.writeEntry(s, i, at, class)
}

// BeginPass begins a sweep. One that was begun before can not be ended any
// more.
func (x *Index) BeginPass() (pass uint8) {
	x.mu.Lock()
	x.pass++
	pass = x.pass
	x.mu.Unlock()
	for i := range x.shards {
		x.beginShard(i)
	}
	return pass
}

// A Put that comes before its shard's turn happened before the sweep began,
// since nothing has been read yet.
func (x *Index) beginShard(i int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	state := x.shards[i].state
	for i := range state {
		state[i] &^= touched
	}
}

// EndPass ends a sweep that has read everything: what nobody has spoken of
// since it began is gone, and dropped. It returns how many that were, and does
// nothing if another sweep was begun meanwhile.
func (x *Index) EndPass(pass uint8) (removed int) {
	for i := range x.shards {
		removed += x.endShard(i, pass)
	}
	return removed
}

func (x *Index) endShard(shard int, pass uint8) (removed int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if pass != x.pass {
		return 0
	}
	s := &x.shards[shard]
	for i := 0; i < len(s.state); {
		if s.state[i]&(taken|touched) == taken {
			x.removeSlot(s, i) // and look at what has moved here
			removed++
			continue
		}
		i++
	}
	x.shrinkShard(s)
	return removed
}

// Take calls visit for the resources that are overdue: the urgent ones, then
// those that are overdue for longest, and limit of them at most. They are due
// once more at again, which lies after now, unless something is heard of them
// before: a lookup that is lost is made again. It returns how many these are,
// and what is overdue besides.
//
// It takes time for the shards in which something is due, and a comparison for
// each other one.
func (x *Index) Take(now time.Time, limit int, again time.Time, visit func(id string)) (n int, left Left) {
	ids, left := x.takeDue(x.stepsUntil(now), limit, x.stepsTo(again))
	for _, id := range ids {
		visit(id)
	}
	return len(ids), left
}

// Left counts what is overdue and was not given out.
type Left struct{ Ready, NotReady int }

// All is how many that are.
func (l Left) All() int { return l.Ready + l.NotReady }

func (x *Index) takeDue(now uint32, limit int, again uint32) (ids []string, left Left) {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := queue{shards: &x.shards, limit: max(0, limit), before: never}
	for i := range x.shards {
		if x.shards[i].earliest <= now {
			q.scanShard(i, now)
		}
	}
	q.trimToLimit()
	for _, c := range q.found {
		s := &x.shards[c.shard]
		s.due[c.slot] = again
		s.earliest = min(s.earliest, again)
		if s.state[c.slot]&ready != 0 {
			q.overdue.Ready--
		} else {
			q.overdue.NotReady--
		}
		s.state[c.slot] |= handed
		ids = append(ids, x.textID(s, int(c.slot)))
	}
	return ids, q.overdue
}

// After gives the resources that are not due yet, and when they are. The index
// is not held while the caller looks at them.
func (x *Index) After(now time.Time) iter.Seq2[string, time.Time] {
	return func(yield func(string, time.Time) bool) {
		until := x.stepsUntil(now)
		for shard := range x.shards {
			for _, e := range x.entriesAfter(shard, until) {
				if !yield(e.id, x.born.Add(time.Duration(int64(e.due)-int64(birth))*resolution)) {
					return
				}
			}
		}
	}
}

// A waiting entry is one that is not due yet.
type waiting struct {
	id  string
	due uint32
}

func (x *Index) entriesAfter(shard int, until uint32) (entries []waiting) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.shards[shard]
	for i, due := range s.due {
		if s.state[i]&taken != 0 && due > until {
			entries = append(entries, waiting{x.textID(s, i), due})
		}
	}
	return entries
}

// Settle notes what a lookup found of a resource that Take gave out with the
// same again. It has the last word unless another has spoken since; then the
// earlier time stands. A resource that was removed meanwhile stays so. A zero
// due is now.
func (x *Index) Settle(id []byte, due time.Time, class Class, again time.Time) {
	k, at := x.keyOf(id), x.dueAt(due)
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.shards[k.shard]
	i, found := x.findSlot(s, k)
	switch {
	case !found:
	case s.state[i]&handed != 0 && s.due[i] == x.stepsTo(again):
		x.writeEntry(s, i, at, class)
	default:
		s.state[i] |= touched // a lookup is as good a sign of life as a page
		s.bringForward(i, at)
	}
}

// Gone drops a resource that Take gave out with the same again and that a lookup
// did not find, unless another has spoken of it since: it may have come back.
func (x *Index) Gone(id []byte, again time.Time) (dropped bool) {
	k := x.keyOf(id)
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.shards[k.shard]
	i, found := x.findSlot(s, k)
	if !found || s.state[i]&handed == 0 || s.due[i] != x.stepsTo(again) {
		return false
	}
	x.removeSlot(s, i)
	x.shrinkShard(s)
	return true
}

// Remove drops a resource, if it is there.
func (x *Index) Remove(id []byte) {
	k := x.keyOf(id)
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.shards[k.shard]
	if i, found := x.findSlot(s, k); found {
		x.removeSlot(s, i)
		x.shrinkShard(s)
	}
}

// Len is how many resources there are.
func (x *Index) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.n
}

// Ready is how many of them are ready.
func (x *Index) Ready() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ready
}

// Bytes is the memory that the index holds. What ids that are no UUIDs take is
// an estimate.
func (x *Index) Bytes() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	bytes := int(unsafe.Sizeof(*x)) + x.texts.sizeBytes()
	for i := range x.shards {
		s := &x.shards[i]
		bytes += 16*cap(s.ids) + 4*cap(s.due) + cap(s.state)
	}
	return bytes
}

// dueAt is when something is due, at the earliest step that is not before.
func (x *Index) dueAt(due time.Time) uint32 {
	if due.IsZero() {
		due = time.Now()
	}
	return x.stepsTo(due)
}

// stepsTo rounds up.
func (x *Index) stepsTo(t time.Time) uint32 {
	d := t.Sub(x.born)
	steps := int64(d / resolution)
	if d%resolution > 0 {
		steps++
	}
	return clampSteps(steps)
}

// stepsUntil rounds down.
func (x *Index) stepsUntil(t time.Time) uint32 {
	d := t.Sub(x.born)
	steps := int64(d / resolution)
	if d%resolution < 0 {
		steps--
	}
	return clampSteps(steps)
}

func clampSteps(steps int64) uint32 {
	return uint32(min(max(0, steps+int64(birth)), int64(last)))
}
