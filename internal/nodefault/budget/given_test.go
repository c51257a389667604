package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// TestAGrantEndsThatWasGivenBackUnseen verifies that a grant ends if the node was
// quarantined and released between two observations, but not because of an earlier
// release.
func TestAGrantEndsThatWasGivenBackUnseen(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) string { return noon().Add(d).Format("2006-01-02T15:04:05.000000Z07:00") }
	for name, tc := range map[string]struct {
		reason      string
		key, text   string
		stillCounts bool
	}{
		"Released":       {"we gave it back", v1alpha1.AnnotationReleased, fmt.Sprintf(`{"since":%q,"at":%q}`, at(0), at(time.Second)), false},
		"ReleasedBefore": {"that was another session", v1alpha1.AnnotationReleased, fmt.Sprintf(`{"since":%q,"at":%q}`, at(-time.Hour), at(0)), true},
		"Undone":         {"a person took it back", v1alpha1.AnnotationOverridden, fmt.Sprintf(`{"at":%q}`, at(time.Second)), false},
		"UndoneBefore":   {"that was another session", v1alpha1.AnnotationOverridden, fmt.Sprintf(`{"at":%q}`, at(0)), true},
		"Garbage":        {"it says nothing", v1alpha1.AnnotationReleased, `{"since":"yesterday"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := newNodes(10)
			b := newBudget(t, level(10, 1), always(nodes))
			if got := grants(b, noon(), nodes[0]); !cmp.Equal(got, []string{"node-000"}) {
				t.Fatalf("%v may go", got)
			}
			nodes[0].Annotations = map[string]string{tc.key: tc.text}
			got := grants(b, noon().Add(2*time.Second), nodes[1])
			if stands := len(got) == 0; stands != tc.stillCounts {
				t.Errorf("%s: it counts: %t", tc.reason, stands)
			}
		})
	}
}
