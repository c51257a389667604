package changeevent

import (
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestRingIsAQueueThatForgets compares a ring with a slice under random operations.
func TestRingIsAQueueThatForgets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ring{capacity: rapid.IntRange(1, 70).Draw(t, "capacity")}
		var want []string
		for i := range rapid.IntRange(0, 300).Draw(t, "steps") {
			if len(want) > 0 && rapid.IntRange(0, 2).Draw(t, "take") == 0 {
				if got := r.oldestItem().event.NodeName; got != want[0] {
					t.Fatalf("the oldest is %q, want %q", got, want[0])
				}
				if got := r.takeOldest().event.NodeName; got != want[0] {
					t.Fatalf("took %q, want %q", got, want[0])
				}
				want = want[1:]
				continue
			}
			name := strconv.Itoa(i)
			place, full := r.reserveSlot()
			if full != (len(want) == r.capacity) {
				t.Fatalf("full is %t with %d of %d", full, len(want), r.capacity)
			}
			if full {
				if place.event.NodeName != want[0] {
					t.Fatalf("%q has to make way, want %q", place.event.NodeName, want[0])
				}
				want = want[1:]
			}
			place.event = ChangeEvent{NodeName: name}
			want = append(want, name)
		}
		if r.n != len(want) || len(r.items) > r.capacity {
			t.Fatalf("%d items in %d places, want %d in at most %d", r.n, len(r.items), len(want), r.capacity)
		}
	})
}

func TestRingKeepsNothingThatWasTaken(t *testing.T) {
	r := ring{capacity: 4}
	place, _ := r.reserveSlot()
	place.event = ChangeEvent{NodeName: "node", Details: map[string]string{"a": "b"}}
	r.takeOldest()
	for i := range r.items {
		if r.items[i].event.Details != nil || r.items[i].ctx != nil {
			t.Errorf("place %d still refers to what was taken", i)
		}
	}
}
