package action

import (
	"fmt"
	"testing"
)

// TestFewWarnings holds that a result keeps some warnings, and says how many
// there are beside.
func TestFewWarnings(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 250 {
		many = append(many, fmt.Sprintf("pod %d cannot be evicted at the moment", i))
	}
	got := limitWarnings(many)
	if len(got) != maxWarnings || got[0] != many[0] || got[maxWarnings-1] != "and 235 more" {
		t.Errorf("%d warnings are left, and the last is %q", len(got), got[len(got)-1])
	}
	if got := limitWarnings(many[:maxWarnings]); len(got) != maxWarnings || got[maxWarnings-1] != many[maxWarnings-1] {
		t.Errorf("of as many as there is room for %d are left, and the last is %q", len(got), got[len(got)-1])
	}
}
