package sentinel

import (
	"testing"

	"pgregory.net/rapid"
)

// TestIndex holds the index against a map, with keys that crowd together.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x index
		want := map[memoryKey]int64{}
		key := rapid.Custom(func(t *rapid.T) memoryKey {
			low := rapid.SampledFrom([]uint64{1, 2, 254, 255, 256, 511, 1023}).Draw(t, "low")
			return memoryKey(low + rapid.Uint64Range(0, 200).Draw(t, "high")<<10)
		})
		for range rapid.IntRange(1, 2000).Draw(t, "steps") {
			k := key.Draw(t, "key")
			switch e := x.get(k); rapid.IntRange(0, 20).Draw(t, "what") {
			case 0:
				if x.n > 0 {
					x.removeNear(k)
					forgetOne(t, &x, want)
				}
			case 1:
				limit := rapid.Int64Range(0, 100).Draw(t, "limit")
				x.removeIf(func(e *memoryEntry) bool { return e.generation%100 >= limit })
				for k, v := range want {
					if v%100 >= limit {
						delete(want, k)
					}
				}
			default:
				if e == nil {
					e = x.add(k)
				}
				e.generation = rapid.Int64().Draw(t, "value")
				want[k] = e.generation
			}
			if x.n != len(want) {
				t.Fatalf("%d entries, want %d", x.n, len(want))
			}
		}
		for k, v := range want {
			if e := x.get(k); e == nil || e.generation != v {
				t.Fatalf("%d: got %v, want %d", k, e, v)
			}
		}
	})
}

// forgetOne drops the one entry from want that is no longer in x.
func forgetOne(t *rapid.T, x *index, want map[memoryKey]int64) {
	t.Helper()
	for k := range want {
		if x.get(k) == nil {
			delete(want, k)
			return
		}
	}
	t.Fatal("nothing was removed")
}
