package policy

import (
	"testing"
	"time"
)

// TestShares checks that requesters without a place come before those with one, in order.
func TestShares(t *testing.T) {
	s, now := newPlaceAllocator(), time.Unix(1763805600, 0)
	takes := func(requester string, want bool) time.Duration {
		t.Helper()
		now = now.Add(time.Millisecond)
		after, ok := s.tryReservePlace(requester, now)
		if ok != want || ok != (after == 0) {
			t.Fatalf("%s takes a process: %v, to come back after %s, want %v", requester, ok, after, want)
		}
		return after
	}
	for range maxPerRequester {
		takes("a", true)
	}
	first, second := takes("a", false), takes("a", false)
	if first >= second {
		t.Errorf("two who were turned away come back after %s and %s, want one after the other", first, second)
	}
	for range 2 * int(maxRetryDelay/usualHold) {
		if after := takes("a", false); after > maxRetryDelay {
			t.Fatalf("it is to come back after %s", after)
		}
	}
	for range MaxEvaluatorProcesses - maxPerRequester {
		takes("b", true)
	}
	takes("c", false)
	takes("d", false)
	s.releasePlace("a")
	takes("a", false) // it is reserved for c
	takes("d", false)
	takes("c", true)
	s.releasePlace("b")
	takes("b", false)
	takes("d", true)

	takes("e", false)
	s.releasePlace("a")
	now = now.Add(maxRetryDelay + retryGrace) // e was deleted
	takes("a", true)
	for requester, n := range map[string]int{"a": 1, "b": 1, "c": 1, "d": 1} {
		for range n {
			s.releasePlace(requester)
		}
	}
	now = now.Add(maxRetryDelay + retryGrace)
	takes("f", true)
	s.releasePlace("f")
	if s.running != 0 || len(s.of) != 0 {
		t.Errorf("%d run, and %d requesters are known, want none", s.running, len(s.of))
	}
}

// TestSharesOfWhoIsLate checks that a late retry, as by a busy operator, keeps its position.
func TestSharesOfWhoIsLate(t *testing.T) {
	s, now := newPlaceAllocator(), time.Unix(1763805600, 0)
	for _, requester := range []string{"a", "a", "b", "b"} {
		if _, ok := s.tryReservePlace(requester, now); !ok {
			t.Fatalf("%s has no place", requester)
		}
	}
	after, _ := s.tryReservePlace("c", now)
	now = now.Add(after + 5*time.Second) // the delay of a busy operator
	s.releasePlace("a")
	if _, ok := s.tryReservePlace("d", now); ok {
		t.Error("the place was for c, and d has it")
	}
	if _, ok := s.tryReservePlace("c", now); !ok {
		t.Error("c lost its turn")
	}
}

// TestShareOfNobody checks that anonymous requesters share one place.
func TestShareOfNobody(t *testing.T) {
	s, now := newPlaceAllocator(), time.Unix(1763805600, 0)
	for i, want := range []bool{true, false} {
		if _, ok := s.tryReservePlace("", now); ok != want {
			t.Errorf("take %d: %v, want %v", i+1, ok, want)
		}
	}
}
