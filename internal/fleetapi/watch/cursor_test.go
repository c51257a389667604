package watch_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

func TestPositionsAreOrdered(t *testing.T) {
	sorted := []watch.Position{{}, {0, 1}, {1, 0}, {1, 7}, {2, 0}, {2, 5}, {math.MaxUint64, math.MaxInt64}}
	for i, p := range sorted {
		for j, q := range sorted {
			if got := p.Compare(q); got != min(max(i-j, -1), 1) {
				t.Errorf("%v to %v is %d", p, q, got)
			}
		}
	}
}

func anyCursor() *rapid.Generator[watch.Cursor] {
	return rapid.Custom(func(t *rapid.T) watch.Cursor {
		return watch.Cursor{
			Epoch:    uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "epoch")),
			Position: watch.Position{Xact: rapid.Uint64().Draw(t, "xact"), Seq: rapid.Int64Min(0).Draw(t, "seq")},
		}
	})
}

func TestCursorRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyCursor().Draw(t, "cursor")
		got, err := watch.ParseCursor(c.String())
		if err != nil || got != c {
			t.Errorf("%v came back as %v, %v", c, got, err)
		}
	})
}

func TestParseCursorRefuses(t *testing.T) {
	c := watch.Cursor{Epoch: uuid.New(), Position: watch.Position{Xact: 7, Seq: 9}}.String()
	for reason, s := range map[string]string{
		"empty":           "",
		"short":           c[:len(c)-2],
		"long":            c + "AA",
		"padded":          c + "=",
		"other version":   "B" + c[1:],
		"line break":      c[:4] + "\n" + c[4:],
		"other alphabet":  strings.Repeat("+", len(c)),
		"negative number": c[:len(c)-11] + strings.Repeat("_", 11),
	} {
		if got, err := watch.ParseCursor(s); !errors.Is(err, watch.ErrMalformedCursor) {
			t.Errorf("%s: %q is %v, %v", reason, s, got, err)
		}
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add(watch.Cursor{}.String())
	f.Add(watch.Cursor{Epoch: uuid.UUID{1}, Position: watch.Position{Xact: 1 << 40, Seq: 12}}.String())
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := watch.ParseCursor(s)
		if err != nil {
			return
		}
		if c.String() != s {
			t.Errorf("%q is %v, whose text is %q", s, c, c)
		}
	})
}

// TestFeedStates checks that different states have different encodings. Their cursors are never after
// changes that are not visible yet.
func TestFeedStates(t *testing.T) {
	states := rapid.Custom(func(t *rapid.T) watch.FeedState {
		s := watch.FeedState{Epoch: uuid.UUID{rapid.Byte().Draw(t, "epoch") % 2}, Newest: watch.Position{
			Xact: rapid.Uint64Range(3, 6).Draw(t, "xact"), Seq: rapid.Int64Range(1, 2).Draw(t, "seq"),
		}}
		s.Pending = slices.Compact(slices.Sorted(slices.Values(rapid.SliceOfN(rapid.Uint64Range(1, s.Newest.Xact-1), 0, 3).Draw(t, "pending"))))
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := states.Draw(t, "a"), states.Draw(t, "b")
		same := a.Epoch == b.Epoch && a.Newest == b.Newest && slices.Equal(a.Pending, b.Pending)
		if got := string(a.AppendEncoded(nil)) == string(b.AppendEncoded(nil)); got != same {
			t.Errorf("%v and %v have the same form: %t", a, b, got)
		}
		c := a.CursorBeforePending()
		if c.Epoch != a.Epoch || c.Compare(a.Newest) > 0 {
			t.Errorf("the cursor of %v is %v", a, c)
		}
		for _, xact := range a.Pending {
			if c.Compare(watch.Position{Xact: xact, Seq: 1}) >= 0 {
				t.Errorf("the cursor of %v is behind the change of %d", a, xact)
			}
		}
	})
}
