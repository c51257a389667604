package sentinel

import (
	"strings"
	"testing"
	"time"
)

// TestOurs checks that an API time maps to the local clock and has a monotonic reading. Setting the
// wall clock does not move it.
func TestOurs(t *testing.T) {
	now := time.Now()
	for name, told := range map[string]time.Time{
		"later":   time.Now().Add(time.Hour).UTC().Round(0),
		"earlier": time.Now().Add(-time.Hour).UTC().Round(0),
	} {
		if got := toMonotonicClock(told, now); !got.Equal(told) || !strings.Contains(got.String(), " m=") {
			t.Errorf("%s: %s becomes %s", name, told, got)
		}
	}
	if !toMonotonicClock(time.Time{}, now).IsZero() {
		t.Error("no time becomes one")
	}
	far := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	if got := toMonotonicClock(far, now); got.Before(now.AddDate(100, 0, 0)) {
		t.Errorf("%s becomes %s", far, got)
	}
}
