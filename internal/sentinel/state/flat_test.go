package state_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// TestFlatMap holds the table against a map, with keys that crowd together.
func TestFlatMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m state.FlatMap[int]
		want := map[uint64]int{}
		keys := rapid.Custom(func(t *rapid.T) uint64 {
			low := rapid.SampledFrom([]uint64{1, 2, 254, 255, 256, 511, 1023}).Draw(t, "low")
			return low + rapid.Uint64Range(0, 200).Draw(t, "high")<<10
		})
		for range rapid.IntRange(1, 600).Draw(t, "steps") {
			key := keys.Draw(t, "key")
			switch v := m.Get(key); rapid.IntRange(0, 20).Draw(t, "what") {
			case 0:
				if m.Len() > 0 {
					m.EvictOneNear(key)
					forgetOne(t, &m, want)
				}
			case 1:
				limit := rapid.IntRange(0, 100).Draw(t, "limit")
				m.RemoveIf(func(v *int) bool { return *v >= limit })
				for key, v := range want {
					if v >= limit {
						delete(want, key)
					}
				}
			default:
				if v == nil {
					v = m.InsertZero(key)
				}
				*v = rapid.IntRange(0, 100).Draw(t, "value")
				want[key] = *v
			}
			if m.Len() != len(want) {
				t.Fatalf("%d entries, want %d", m.Len(), len(want))
			}
		}
		for key, v := range want {
			if got := m.Get(key); got == nil || *got != v {
				t.Fatalf("%d: got %v, want %d", key, got, v)
			}
		}
	})
}

// TestFlatMapFlood checks that the table grows with its content and shrinks again.
func TestFlatMapFlood(t *testing.T) {
	var m state.FlatMap[uint64]
	if m.Get(7) != nil || m.Len() != 0 {
		t.Error("an empty table has something in it")
	}
	m.RemoveIf(func(*uint64) bool { return true })
	const many, few = 100_000, 300
	spread := func(i uint64) uint64 { return i * 0x9e3779b97f4a7c15 }
	for i := uint64(1); i <= many; i++ {
		*m.InsertZero(spread(i)) = i
	}
	m.RemoveIf(func(v *uint64) bool { return *v > few })
	for i := uint64(1); i <= many; i++ {
		if got := m.Get(spread(i)); (got != nil) != (i <= few) || got != nil && *got != i {
			t.Fatalf("%d: got %v", i, got)
		}
	}
	if m.Len() != few {
		t.Errorf("%d entries, want %d", m.Len(), few)
	}
}

// forgetOne removes the one entry from want that is no longer in m.
func forgetOne(t *rapid.T, m *state.FlatMap[int], want map[uint64]int) {
	t.Helper()
	for key := range want {
		if m.Get(key) == nil {
			delete(want, key)
			return
		}
	}
	t.Fatal("nothing was removed")
}
