package sentinel

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(10)
		k := m.key([]byte("a"))
		if last, duplicate := m.recall(k, 1); !last.At.IsZero() || duplicate {
			t.Errorf("unknown: %v %t", last, duplicate)
		}
		m.claim(k, 1)
		if last, duplicate := m.recall(k, 1); !last.At.IsZero() || !duplicate {
			t.Errorf("claimed: %v %t", last, duplicate)
		}
		if last, duplicate := m.recall(k, 2); !last.At.IsZero() || duplicate {
			t.Errorf("claimed in the round before, never confirmed: %v %t", last, duplicate)
		}
		m.claim(k, 2)
		at := time.Now()
		m.confirm(k, 7, 2)
		time.Sleep(time.Minute)
		last, duplicate := m.recall(k, 3)
		if last.Generation != 7 || !last.At.Equal(at) || duplicate {
			t.Errorf("confirmed: %v %t", last, duplicate)
		}
	})
}

// TestMemoryForgets: an entry lives as long as it is asked for, and a few
// rounds longer.
func TestMemoryForgets(t *testing.T) {
	m := newMemory(10)
	a, b := m.key([]byte("a")), m.key([]byte("b"))
	m.confirm(a, 1, 1)
	m.confirm(b, 1, 1)
	for round := uint32(2); round < 20; round++ {
		m.recall(a, round)
		want := 2
		if round >= 1+forgetAfter {
			want = 1
		}
		if got := m.sweep(round); got != want {
			t.Errorf("round %d: %d entries, want %d", round, got, want)
		}
	}
	if last, _ := m.recall(a, 20); last.At.IsZero() {
		t.Error("the one that was asked for is gone")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	m := newMemory(10)
	for i := range 100 {
		k := m.key(fmt.Append(nil, i))
		m.claim(k, 1)
		m.confirm(k, 1, 1)
		if last, duplicate := m.recall(k, 1); last.At.IsZero() || !duplicate {
			t.Fatalf("entry %d is not there", i)
		}
	}
	if got := m.sweep(1); got != 10 {
		t.Errorf("%d entries", got)
	}
}

// TestMemoryIsSmall: a fleet of which nobody answers for anything must fit into
// a small pod, and be let go when it is over.
func TestMemoryIsSmall(t *testing.T) {
	const most = 450_000 / 8 // the default would only take longer
	m := newMemory(most)
	empty := heap()
	var id [8]byte
	for i := range 2 * most {
		k := m.key(binary.BigEndian.AppendUint64(id[:0], uint64(i)))
		m.claim(k, 1)
		m.confirm(k, 1, 1)
	}
	if n := m.sweep(1); n != most {
		t.Errorf("%d entries, want %d", n, most)
	}
	if each := (heap() - empty) / most; each > 70 {
		t.Errorf("%d bytes for each entry", each)
	}
	if n := m.sweep(1 + forgetAfter); n != 0 {
		t.Errorf("%d entries are left", n)
	}
	if left := heap() - empty; left > 100<<10 {
		t.Errorf("%d bytes are left", left)
	}
	runtime.KeepAlive(m)
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestStuckSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(10)
		k := m.key([]byte("a"))
		first := time.Now().Add(-time.Hour)
		if got := m.stuckSince(k, 1, 4, first); !got.Equal(first) {
			t.Errorf("got %s, want %s", got, first)
		}
		time.Sleep(time.Minute)
		if got := m.stuckSince(k, 2, 4, time.Now()); !got.Equal(first) {
			t.Errorf("another patch: got %s, want %s", got, first)
		}
		later := time.Now()
		if got := m.stuckSince(k, 3, 5, later); !got.Equal(later) {
			t.Errorf("observed has moved: got %s, want %s", got, later)
		}
	})
}

func TestFirstSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(10)
		k := m.key([]byte("a"))
		first := time.Now()
		for round := uint32(1); round < 10; round++ {
			if got := m.firstSeen(k, round, time.Now()); !got.Equal(first) {
				t.Errorf("round %d: got %s, want %s", round, got, first)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSampler()
		lines := 0
		for range 1000 {
			if omitted, ok := s.allow("a"); ok {
				lines++
				if omitted != 0 {
					t.Errorf("%d left out before line %d", omitted, lines)
				}
			}
		}
		if lines != sampleBurst {
			t.Errorf("%d lines", lines)
		}
		if _, ok := s.allow("b"); !ok {
			t.Error("another kind is held back")
		}
		time.Sleep(sampleWindow)
		if omitted, ok := s.allow("a"); !ok || omitted != 1000-sampleBurst {
			t.Errorf("a minute later: %d, %t", omitted, ok)
		}
		if omitted, ok := s.allow("a"); !ok || omitted != 0 {
			t.Errorf("and then: %d, %t", omitted, ok)
		}
	})
}
