package state

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(10)
		k := m.HashID([]byte("a"))
		want := func(reason string, generation int64, round uint32, want PublishState) {
			t.Helper()
			if got := m.RecallPublishState(k, generation, time.Now(), round); got != want {
				t.Errorf("%s: %+v, want %+v", reason, got, want)
			}
		}
		want("unknown", 7, 1, PublishState{})
		m.MarkInFlight(k, 7, 1)
		want("claimed", 7, 1, PublishState{Claimed: true, InFlight: true})
		want("a newer generation", 8, 1, PublishState{Claimed: true})
		want("an older generation, on its way", 6, 1, PublishState{Claimed: true, InFlight: true})
		want("claimed in the round before, and still on its way", 7, 2, PublishState{InFlight: true})
		m.MarkFailed(k, 7)
		want("given up", 7, 2, PublishState{})
		m.MarkInFlight(k, 7, 2)
		at := time.Now()
		m.MarkConfirmedUnlessOvertaken(k, 7, at)
		time.Sleep(time.Minute)
		confirmed := PublishState{Last: decision.ConfirmedEvent{Generation: 7, At: at}}
		want("confirmed", 7, 3, confirmed)

		m.MarkInFlight(k, 8, 3)
		before := time.Now().Add(-2 * time.Minute)
		m.MarkConfirmedUnlessOvertaken(k, 6, before)
		want("an older generation does not land for the one on its way", 8, 4, PublishState{Last: confirmed.Last, InFlight: true})
		m.MarkFailed(k, 8)
		want("an older generation, asked for before the last confirm and confirmed after it", 7, 4, confirmed)
		if was := m.RecallPublishState(k, 6, before, 4); !was.InFlight {
			t.Errorf("an older generation, asked for before the last confirm: %+v, want it overtaken", was)
		}
		m.MarkConfirmedUnlessOvertaken(k, 6, time.Now())
		want("an API that went back", 6, 4, PublishState{Last: decision.ConfirmedEvent{Generation: 6, At: time.Now()}})
	})
}

// TestMemoryForgets: an entry lives as long as it is asked for, and a few
// rounds longer.
func TestMemoryForgets(t *testing.T) {
	m := NewMemory(10)
	a, b := m.HashID([]byte("a")), m.HashID([]byte("b"))
	m.MarkConfirmedUnlessOvertaken(a, 1, time.Now())
	m.MarkConfirmedUnlessOvertaken(b, 1, time.Now())
	for round := uint32(2); round < 20; round++ {
		m.RecallPublishState(a, 1, time.Now(), round)
		want := 2
		if round > forgetAfterLaps {
			want = 1
		}
		if got := m.EndLapAndEvictUnused(); got != want {
			t.Errorf("round %d: %d entries, want %d", round, got, want)
		}
	}
	if m.RecallPublishState(a, 1, time.Now(), 20).Last.At.IsZero() {
		t.Error("the one that was asked for is gone")
	}
}

// TestMemoryKeepsAnswers checks that data requested before an answer does not cause an announcement
// after it.
func TestMemoryKeepsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(10)
		k := m.HashID([]byte("a"))
		m.MarkConfirmedUnlessOvertaken(k, 7, time.Now())
		m.ScheduleForget(k)
		if m.PurgeExpiredAndGetLongestWait(time.Now()); m.RecallPublishState(k, 7, time.Now(), 1).Last.At.IsZero() {
			t.Error("the announcement is forgotten with its answer")
		}
		time.Sleep(keepAnswered + time.Second)
		if m.PurgeExpiredAndGetLongestWait(time.Now()); m.Len() != 0 {
			t.Error("the announcement is never forgotten")
		}
		m.MarkConfirmedUnlessOvertaken(k, 7, time.Now())
		if m.ForgetResource(k); m.Len() != 0 {
			t.Error("a resource that is gone is kept")
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	m := NewMemory(10)
	for i := range 100 {
		k := m.HashID(fmt.Append(nil, i))
		m.MarkInFlight(k, 1, 1)
		m.MarkConfirmedUnlessOvertaken(k, 1, time.Now())
		if was := m.RecallPublishState(k, 1, time.Now(), 1); was.Last.At.IsZero() || !was.Claimed {
			t.Fatalf("entry %d is not there", i)
		}
	}
	if got := m.EndLapAndEvictUnused(); got != 10 {
		t.Errorf("%d entries", got)
	}
}

// TestMemoryIsSmall checks that the memory of a fleet without any answers fits into a small pod,
// and is released afterwards.
func TestMemoryIsSmall(t *testing.T) {
	const most = 450_000 / 8 // the default would only take longer
	m := NewMemory(most)
	empty := heapBytes()
	var id [8]byte
	for i := range 2 * most {
		k := m.HashID(binary.BigEndian.AppendUint64(id[:0], uint64(i)))
		m.MarkInFlight(k, 1, 1)
		m.MarkConfirmedUnlessOvertaken(k, 1, time.Now())
	}
	if n := m.EndLapAndEvictUnused(); n != most {
		t.Errorf("%d entries, want %d", n, most)
	}
	if each := (heapBytes() - empty) / most; each > 70 {
		t.Errorf("%d bytes for each entry", each)
	}
	for range forgetAfterLaps - 2 {
		m.EndLapAndEvictUnused()
	}
	if n := m.EndLapAndEvictUnused(); n != 0 {
		t.Errorf("%d entries are left", n)
	}
	if left := heapBytes() - empty; left > 100<<10 {
		t.Errorf("%d bytes are left", left)
	}
	runtime.KeepAlive(m)
}

// heapBytes returns the number of bytes in use.
func heapBytes() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestMemoryStuckSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(10)
		k := m.HashID([]byte("a"))
		first := time.Now().Add(-time.Hour)
		if got := m.RecordUnobservedSince(k, 4, first); !got.Equal(first) {
			t.Errorf("got %s, want %s", got, first)
		}
		time.Sleep(time.Minute)
		if got := m.RecordUnobservedSince(k, 4, time.Now()); !got.Equal(first) {
			t.Errorf("another patch: got %s, want %s", got, first)
		}
		later := time.Now()
		if got := m.RecordUnobservedSince(k, 5, later); !got.Equal(later) {
			t.Errorf("observed has moved: got %s, want %s", got, later)
		}
	})
}

func TestMemoryFirstSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(10)
		k := m.HashID([]byte("a"))
		first := time.Now()
		for round := uint32(1); round < 10; round++ {
			if got := m.RecordFirstSeen(k, time.Now()); !got.Equal(first) {
				t.Errorf("round %d: got %s, want %s", round, got, first)
			}
			time.Sleep(time.Second)
		}
	})
}
