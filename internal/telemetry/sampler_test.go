package telemetry

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSampler()
		lines := 0
		for range 1000 {
			if omitted, ok := s.AllowLogLine("a"); ok {
				lines++
				if omitted != 0 {
					t.Errorf("%d left out before line %d", omitted, lines)
				}
			}
		}
		if lines != sampleBurst {
			t.Errorf("%d lines", lines)
		}
		if _, ok := s.AllowLogLine("b"); !ok {
			t.Error("another kind is held back")
		}
		time.Sleep(sampleWindow)
		if omitted, ok := s.AllowLogLine("a"); !ok || omitted != 1000-sampleBurst {
			t.Errorf("a minute later: %d, %t", omitted, ok)
		}
		if omitted, ok := s.AllowLogLine("a"); !ok || omitted != 0 {
			t.Errorf("and then: %d, %t", omitted, ok)
		}
	})
}
