package shard_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

var _ sentinel.Shard = (*shard.Part)(nil)

func newParts(t require, count int) []*shard.Part {
	t.Helper()
	parts := make([]*shard.Part, count)
	for i := range parts {
		p, err := shard.NewStaticPart(count, i)
		if err != nil {
			t.Fatalf("Static(%d, %d) = %v", count, i, err)
		}
		parts[i] = p
	}
	return parts
}

// require is the common part of testing.T and rapid.T.
type require interface {
	Helper()
	Fatalf(format string, args ...any)
}

// owner returns the one part that owns id.
func owner(t require, parts []*shard.Part, id []byte) int {
	t.Helper()
	found := -1
	for i, p := range parts {
		release, ok := p.Acquire(id)
		release()
		if ok != p.Owns(id) {
			t.Fatalf("%s acquires %q: %t, owns it: %t", p, id, ok, !ok)
		}
		switch {
		case !ok:
		case found >= 0:
			t.Fatalf("%q is owned by %s and by %s", id, parts[found], p)
		default:
			found = i
		}
	}
	if found < 0 {
		t.Fatalf("%q is owned by none of %d", id, len(parts))
	}
	return found
}

func TestStaticOneOwner(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "parts")
		parts, more := newParts(t, n), newParts(t, n+1)
		for _, id := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 60), 1, 20).Draw(t, "ids") {
			before, after := owner(t, parts, id), owner(t, more, id)
			if before != after && after != n {
				t.Fatalf("with part %d added, %q moves from %d to %d", n, id, before, after)
			}
		}
	})
}

func TestStaticMovesFew(t *testing.T) {
	t.Parallel()
	const ids = 20_000
	for _, form := range []string{"%d", "01a1fa4c-b84e-72b4-8a15-%012x", "cluster-%06d-eu"} {
		for _, n := range []int{1, 2, 3, 7, 16} {
			parts, more := newParts(t, n), newParts(t, n+1)
			moved, each := 0, make([]int, n)
			for i := range ids {
				id := fmt.Appendf(nil, form, i)
				before := owner(t, parts, id)
				each[before]++
				if before != owner(t, more, id) {
					moved++
				}
			}
			wantAbout(t, fmt.Sprintf("%s: moved from %d to %d parts", form, n, n+1), moved, ids, 1/float64(n+1))
			for i, got := range each {
				wantAbout(t, fmt.Sprintf("%s: owned by %d/%d", form, i, n), got, ids, 1/float64(n))
			}
		}
	}
}

// wantAbout accepts a deviation of five standard deviations.
func wantAbout(t *testing.T, what string, got, of int, part float64) {
	t.Helper()
	want, deviation := float64(of)*part, math.Sqrt(float64(of)*part*(1-part))
	if math.Abs(float64(got)-want) > 5*deviation {
		t.Errorf("%s: %d of %d, want %.0f or so", what, got, of, want)
	}
}

func TestStaticRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range [][2]int{{0, 0}, {-1, 0}, {3, 3}, {3, -1}, {shard.MaxParts + 1, 0}} {
		if p, err := shard.NewStaticPart(bad[0], bad[1]); err == nil {
			t.Errorf("Static(%d, %d) = %v, want an error", bad[0], bad[1], p)
		}
	}
}

// TestStaticKeepsOwners would fail if another version shared the fleet out
// otherwise: while one replaces the other, two would own the same.
func TestStaticKeepsOwners(t *testing.T) {
	t.Parallel()
	parts := newParts(t, 5)
	got := ""
	for i := range 20 {
		got += fmt.Sprint(owner(t, parts, fmt.Appendf(nil, "cls-%d-of-a-fleet", i)))
	}
	if want := "10300102020012020241"; got != want {
		t.Errorf("owners = %s, want %s", got, want)
	}
}

func TestOwnsAllocatesNothing(t *testing.T) {
	p := newParts(t, 3)[1]
	id := []byte("01a1fa4c-b84e-72b4-8a15-00b90968348b")
	if n := testing.AllocsPerRun(100, func() { p.Owns(id) }); n != 0 {
		t.Errorf("Owns allocates %v times", n)
	}
}

func BenchmarkOwnsMillion(b *testing.B) {
	for _, n := range []int{3, 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p, err := shard.NewStaticPart(n, 0)
			if err != nil {
				b.Fatal(err)
			}
			id := []byte("01a1fa4c-b84e-72b4-8a15-00b90968348b")
			b.ReportAllocs()
			for b.Loop() {
				for i := range 1_000_000 {
					id[30], id[31], id[32] = byte(i), byte(i>>8), byte(i>>16)
					p.Owns(id)
				}
			}
		})
	}
}
