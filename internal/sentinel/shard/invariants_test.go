package shard

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// owners returns the replicas that own a key.
func (w *world) owners(key uint64) (names []string) {
	for _, r := range w.replicas {
		if !r.crashed && r.holds.ownsHash(key) {
			names = append(names, r.name)
		}
	}
	return names
}

// check fails the test if a replica owns a key of another one.
func (w *world) check(r *replica) {
	if r.holds.ownsNothing() {
		return
	}
	for _, key := range w.keys {
		if owners := w.owners(key); len(owners) > 1 && r.holds.ownsHash(key) {
			w.fail("%x is owned by %v", key, owners)
		}
	}
}

// work makes a replica try to publish for a while.
func (r *replica) work(until time.Duration) {
	w := r.w
	if w.now >= until {
		return
	}
	key := w.keys[w.random.IntN(len(w.keys))]
	if release, ok := r.holds.beginAttempt(key); ok {
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

// checkAttempts fails the test if another replica has an attempt in progress for a key that r has
// just acquired, unless the time of that replica has expired since.
func (w *world) checkAttempts(r *replica, key uint64) {
	for _, o := range w.replicas {
		if o == r || o.crashed {
			continue
		}
		for _, a := range o.attempts {
			if a.key == key && a.epoch == o.machine.epoch && o.clock() < o.machine.holdingExpiry() {
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

// strike causes a fault, or adds or removes a replica.
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
	r.after(0, func() { r.step(func(time.Duration) { r.machine.leaving = true }) })
}

// wantOwners fails the test unless every key has one owner and all replicas are members.
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
