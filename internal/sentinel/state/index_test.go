package state_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// An indexModel is a plain implementation of an index.
type indexModel struct {
	born    time.Time
	entries map[string]*modelEntry
	pass    uint8
}

type modelEntry struct {
	due             int64 // in steps of 100 ms
	class           state.DueClass
	touched, handed bool
}

// steps rounds up.
func (m *indexModel) steps(t time.Time) int64 {
	ms := t.Sub(m.born)
	n := int64(ms / (100 * time.Millisecond))
	if ms%(100*time.Millisecond) > 0 {
		n++
	}
	return n
}

func (m *indexModel) put(id string, due time.Time, class state.DueClass) {
	m.entries[id] = &modelEntry{due: m.steps(due), class: class, touched: true}
}

func (m *indexModel) seen(id string, due time.Time, class state.DueClass, pass uint8) {
	e := m.entries[id]
	if e != nil && (e.touched || pass != m.pass) {
		e.due = min(e.due, m.steps(due))
		return
	}
	m.put(id, due, class)
}

func (m *indexModel) beginPass() {
	m.pass++
	for _, e := range m.entries {
		e.touched = false
	}
}

func (m *indexModel) endPass(pass uint8) int {
	before := len(m.entries)
	maps.DeleteFunc(m.entries, func(_ string, e *modelEntry) bool { return pass == m.pass && !e.touched })
	return before - len(m.entries)
}

func (m *indexModel) settle(id string, due time.Time, class state.DueClass, again time.Time) {
	e := m.entries[id]
	switch {
	case e == nil:
	case e.handed && e.due == m.steps(again):
		m.put(id, due, class)
	default:
		e.due, e.touched = min(e.due, m.steps(due)), true
	}
}

func (m *indexModel) gone(id string, again time.Time) bool {
	e := m.entries[id]
	if e == nil || !e.handed || e.due != m.steps(again) {
		return false
	}
	delete(m.entries, id)
	return true
}

func (m *indexModel) overdue(now time.Time) map[string]int64 {
	late := map[string]int64{}
	for id, e := range m.entries {
		if !m.born.Add(time.Duration(e.due) * 100 * time.Millisecond).After(now) {
			late[id] = e.due
			if e.class == state.ClassUrgent {
				late[id] = math.MinInt64 // goes before all others
			}
		}
	}
	return late
}

func (m *indexModel) ready() (n int) {
	for _, e := range m.entries {
		if e.class == state.ClassReady {
			n++
		}
	}
	return n
}

// ids generates UUIDs, ids that resemble UUIDs, and other ids.
func ids() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		n := rapid.IntRange(0, 400).Draw(t, "n")
		return rapid.SampledFrom([]string{
			uuid(n), uuid(n), uuid(n), strings.ToUpper(uuid(n + 0xabc0000)), "-" + uuid(n)[1:], strings.ReplaceAll(uuid(n), "-", "x"),
			fmt.Sprintf("cluster-%d", n), uuid(n) + "0", "é" + uuid(n)[2:],
		}).Draw(t, "form")
	})
}

func uuid(n int) string { return fmt.Sprintf("019a8e30-7c40-7b21-9d0e-%012x", n) }

// TestDueIndex compares the index with the model: the taken resources, their order, and the counts,
// for any sequence of updates.
func TestDueIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		born := time.Now()
		h := indexHistory{T: t, x: state.NewDueIndex(born), m: indexModel{born: born, entries: map[string]*modelEntry{}}, now: born}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			h.step()
			if h.x.Len() != len(h.m.entries) || h.x.CountReady() != h.m.ready() {
				t.Fatalf("%d entries, %d of them ready, want %d and %d", h.x.Len(), h.x.CountReady(), len(h.m.entries), h.m.ready())
			}
		}
		for len(h.m.entries) > 0 { // nothing is ever lost
			h.now = h.now.Add(24 * time.Hour)
			h.take(50, time.Time{})
		}
		if h.x.Len() != 0 {
			t.Fatalf("%d entries are left", h.x.Len())
		}
	})
}

type indexHistory struct {
	*rapid.T
	x   *state.DueIndex
	m   indexModel
	now time.Time

	passes   []uint8
	dueAgain []time.Time
	taken    []string
}

func (h *indexHistory) due() time.Time {
	ms := rapid.Int64Range(-200_000, 2_000_000).Draw(h.T, "due in ms")
	times := []time.Time{h.now.Add(time.Duration(ms) * time.Millisecond), h.now.Add(time.Duration(ms/100) * time.Millisecond)}
	if len(h.dueAgain) > 0 {
		times = append(times, h.dueAgain[len(h.dueAgain)-1]) // by chance, and not because it was taken
	}
	return rapid.SampledFrom(times).Draw(h.T, "due")
}

func (h *indexHistory) step() {
	due, class := h.due(), rapid.SampledFrom([]state.DueClass{state.ClassNotReady, state.ClassReady, state.ClassUrgent}).Draw(h.T, "class")
	switch rapid.SampledFrom([]string{"put", "seen", "seen", "pass", "end", "take", "take", "settle", "settle", "gone", "remove", "wait"}).Draw(h.T, "what") {
	case "put":
		for _, id := range rapid.SliceOfN(ids(), 1, 40).Draw(h.T, "ids") {
			h.x.PutNewest([]byte(id), due, class)
			h.m.put(id, due, class)
		}
	case "seen":
		pass := h.pass()
		for _, id := range rapid.SliceOfN(ids(), 1, 200).Draw(h.T, "ids") {
			h.x.MergeFromSweep([]byte(id), due, class, pass)
			h.m.seen(id, due, class, pass)
		}
	case "pass":
		h.passes = append(h.passes, h.x.BeginSweep())
		h.m.beginPass()
	case "end":
		pass := h.pass()
		if got, want := h.x.EndSweepAndRemoveUnseen(pass), h.m.endPass(pass); got != want {
			h.Fatalf("the pass removed %d, want %d", got, want)
		}
	case "take":
		again := h.now.Add(time.Duration(rapid.IntRange(101, 30_000).Draw(h.T, "again")) * time.Millisecond)
		h.take(rapid.IntRange(0, 30).Draw(h.T, "limit"), again)
	case "settle":
		if len(h.taken) > 0 {
			id, again := rapid.SampledFrom(h.taken).Draw(h.T, "id"), rapid.SampledFrom(h.dueAgain).Draw(h.T, "again")
			h.x.MergeLookupResult([]byte(id), due, class, again)
			h.m.settle(id, due, class, again)
		}
	case "gone":
		if len(h.taken) > 0 {
			id, again := rapid.SampledFrom(h.taken).Draw(h.T, "id"), rapid.SampledFrom(h.dueAgain).Draw(h.T, "again")
			if got, want := h.x.RemoveUnlessUpdated([]byte(id), again), h.m.gone(id, again); got != want {
				h.Fatalf("%q is gone: got %t, want %t", id, got, want)
			}
		}
	case "remove":
		id := ids().Draw(h.T, "id")
		h.x.RemoveResource([]byte(id))
		delete(h.m.entries, id)
	case "wait":
		h.now = h.now.Add(time.Duration(rapid.Int64Range(-10_000, 600_000).Draw(h.T, "wait")) * time.Millisecond)
	}
}

// pass returns one of the passes so far, the latest or an older one.
func (h *indexHistory) pass() uint8 {
	if len(h.passes) == 0 {
		return 0
	}
	return rapid.SampledFrom(append(h.passes[max(0, len(h.passes)-2):], h.passes[len(h.passes)-1])).Draw(h.T, "pass")
}

// take takes from both. Without again, it removes the taken resources.
func (h *indexHistory) take(limit int, again time.Time) {
	late := h.m.overdue(h.now)
	var got []string
	n, left := h.x.TakeOverdue(h.now, limit, again, func(id string) { got = append(got, id) })
	if n != len(got) || n != min(limit, len(late)) || n+left.Total() != len(late) {
		h.Fatalf("took %d, visited %d, left %d, limit %d, want %d in all", n, len(got), left.Total(), limit, len(late))
	}
	var dues []int64
	for _, id := range got {
		due, ok := late[id]
		if !ok {
			h.Fatalf("%q is not overdue, or was given out twice", id)
		}
		delete(late, id)
		dues = append(dues, due)
	}
	for id, due := range late {
		if n > 0 && due < dues[n-1] {
			h.Fatalf("%q is due at %d and was left behind for one at %d", id, due, dues[n-1])
		}
	}
	if !slices.IsSorted(dues) {
		h.Fatalf("given out in the order %v", dues)
	}
	for _, id := range got {
		if again.IsZero() {
			h.x.RemoveResource([]byte(id))
			delete(h.m.entries, id)
			continue
		}
		e := h.m.entries[id]
		e.due, e.handed = h.m.steps(again), true
	}
	if !again.IsZero() {
		h.dueAgain = append(h.dueAgain, again)
		h.taken = append(h.taken, got...)
	}
}

// takenIDs returns the ids that are taken at a time.
func takenIDs(x *state.DueIndex, now time.Time, limit int) []string {
	var got []string
	x.TakeOverdue(now, limit, now.Add(time.Hour), func(id string) { got = append(got, id) })
	return got
}

func TestDueIndexTimesOutOfRange(t *testing.T) {
	born := time.Now()
	for name, tc := range map[string]struct {
		reason string
		due    time.Time
		now    time.Time
		want   int
	}{
		"FarFuture":     {reason: "what is due in a hundred years is not due in ten", due: born.AddDate(100, 0, 0), now: born.AddDate(10, 0, 0)},
		"Beyond":        {reason: "what lies beyond any clock is not due either", due: time.Unix(1<<40, 0), now: born.AddDate(10, 0, 0)},
		"FarPast":       {reason: "what was due ages ago is due", due: time.Unix(0, 0), now: born, want: 1},
		"ClockSetBack":  {reason: "a clock that was set back makes nothing due", due: born, now: born.AddDate(-20, 0, 0)},
		"ClockSetAhead": {reason: "one that was set ahead makes everything due", due: born.Add(time.Hour), now: born.AddDate(300, 0, 0), want: 1},
		"RoundedUp":     {reason: "nothing is looked at before its time", due: born.Add(time.Millisecond), now: born.Add(99 * time.Millisecond)},
		"InTime":        {reason: "and nothing 100 ms later than that", due: born.Add(time.Millisecond), now: born.Add(100 * time.Millisecond), want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			x := state.NewDueIndex(born)
			x.PutNewest([]byte("a"), tc.due, state.ClassReady)
			if got := takenIDs(x, tc.now, 9); len(got) != tc.want {
				t.Errorf("took %v; %s", got, tc.reason)
			}
		})
	}
}

// TestDueIndexNow checks that a resource without a time is due at once, after those that are overdue
// longer.
func TestDueIndexNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := state.NewDueIndex(time.Now())
		time.Sleep(time.Minute)
		x.PutNewest([]byte("a"), time.Time{}, state.ClassReady)
		x.PutNewest([]byte("b"), time.Now().Add(-time.Second), state.ClassReady)
		if diff := cmp.Diff([]string{"b", "a"}, takenIDs(x, time.Now(), 9)); diff != "" {
			t.Errorf("taken (-want +got):\n%s", diff)
		}
	})
}

// TestDueIndexOrder checks that resources due before the creation of the index keep their order,
// as after an outage with a restart.
func TestDueIndexOrder(t *testing.T) {
	born := time.Now()
	x := state.NewDueIndex(born)
	var want []string
	for i := range 1000 {
		x.PutNewest([]byte(uuid(i)), born.Add(-time.Duration(i)*time.Second), state.ClassNotReady)
		if i >= 990 {
			want = append([]string{uuid(i)}, want...)
		}
	}
	if diff := cmp.Diff(want, takenIDs(x, born, 10)); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
}

// TestDueIndexSize: the index takes little for each resource however many there are,
// and gives it back. The numbers are held against 64 bytes by a benchmark.
func TestDueIndexSize(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		id     func(int) string
		most   int
	}{
		"UUIDs": {reason: "a UUID takes 16 bytes, its time 4, its state 1, at 64 % at worst", id: uuid, most: 33},
		"Names": {reason: "other ids are kept as they are besides", id: func(n int) string { return fmt.Sprintf("cluster-%08d", n) }, most: 33 + 16 + 48},
	} {
		t.Run(name, func(t *testing.T) {
			born := time.Now()
			x := state.NewDueIndex(born)
			empty := x.EstimateMemoryBytes()
			const many = 200_000
			for i := range many {
				x.PutNewest([]byte(tc.id(i)), born.Add(time.Duration(i)*time.Millisecond), state.ClassReady)
				if i == 1000 && x.EstimateMemoryBytes() > 150*1000 {
					t.Errorf("a thousand take %d bytes: many small indexes would take too much", x.EstimateMemoryBytes())
				}
				if i >= many/4 && i%1000 == 0 && x.EstimateMemoryBytes()-empty > i*tc.most {
					t.Fatalf("%d resources take %d bytes each, want at most %d; %s", i, (x.EstimateMemoryBytes()-empty)/i, tc.most, tc.reason)
				}
			}
			pass := x.BeginSweep()
			for i := range 1000 {
				x.MergeFromSweep([]byte(tc.id(i)), born, state.ClassReady, pass)
			}
			if got := x.EndSweepAndRemoveUnseen(pass); got != many-1000 {
				t.Errorf("removed %d", got)
			}
			if got := x.EstimateMemoryBytes() - empty; got > 512*1000 {
				t.Errorf("a thousand are left of %d and take %d bytes", many, got)
			}
			if got := len(takenIDs(x, born.Add(time.Hour), many)); got != 1000 {
				t.Errorf("%d are due of the thousand", got)
			}
			for i := range 1000 {
				x.RemoveResource([]byte(tc.id(i)))
			}
			if x.Len() != 0 || x.EstimateMemoryBytes() > empty+4096 {
				t.Errorf("%d left, %d bytes", x.Len(), x.EstimateMemoryBytes()-empty)
			}
		})
	}
}

// TestDueIndexConcurrentUse: a feed, a sweep, lookups and readers at the same time. The race
// detector watches; every id is there in the end.
func TestDueIndexConcurrentUse(t *testing.T) {
	born := time.Now()
	x := state.NewDueIndex(born)
	const n = 5000
	var wg sync.WaitGroup
	defer wg.Wait()
	pass := x.BeginSweep()
	wg.Go(func() {
		for i := range n {
			x.PutNewest([]byte(uuid(i)), born.Add(time.Hour), state.ClassReady)
		}
	})
	wg.Go(func() {
		for i := range n {
			x.MergeFromSweep([]byte(uuid(i)), born, state.ClassNotReady, pass)
		}
	})
	wg.Go(func() {
		for range 50 {
			again := born.Add(time.Minute)
			x.TakeOverdue(born.Add(time.Second), 100, again, func(id string) { x.MergeLookupResult([]byte(id), born.Add(time.Hour), state.ClassReady, again) })
			_, _, _ = x.Len(), x.CountReady(), x.EstimateMemoryBytes()
		}
	})
	wg.Wait()
	if removed := x.EndSweepAndRemoveUnseen(pass); removed != 0 || x.Len() != n {
		t.Errorf("%d entries, %d removed", x.Len(), removed)
	}
}

func BenchmarkDueIndexPut(b *testing.B) {
	x, id := filledIndex(1_000_000, time.Hour)
	now := time.Now()
	for i := 0; b.Loop(); i++ {
		x.PutNewest(id(i%1_000_000), now.Add(time.Hour), state.ClassReady)
	}
}

func BenchmarkDueIndexTakeNothing(b *testing.B) {
	x, _ := filledIndex(1_000_000, time.Hour)
	for b.Loop() {
		x.TakeOverdue(time.Now(), 1000, time.Now().Add(time.Minute), func(string) {})
	}
}

// BenchmarkDueIndexTakeSome is a backlog: all are due, some are given out.
func BenchmarkDueIndexTakeSome(b *testing.B) {
	x, _ := filledIndex(1_000_000, -time.Hour)
	for b.Loop() {
		x.TakeOverdue(time.Now(), 1000, time.Now(), func(string) {})
	}
}

// filledIndex returns an index with n resources that fall due within an hour from a time on.
func filledIndex(n int, in time.Duration) (*state.DueIndex, func(int) []byte) {
	born := time.Now()
	x := state.NewDueIndex(born)
	buf := []byte(uuid(0))
	id := func(i int) []byte {
		var raw [4]byte
		binary.BigEndian.PutUint32(raw[:], uint32(i))
		for at, c := range raw {
			buf[28+2*at], buf[29+2*at] = "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15]
		}
		return buf
	}
	for i := range n {
		x.PutNewest(id(i), born.Add(in+time.Duration(i%3600)*time.Second), state.ClassReady)
	}
	return x, id
}
