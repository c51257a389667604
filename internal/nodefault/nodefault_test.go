package nodefault_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// TestDiagram verifies that the diagram in the documentation equals the table of
// transitions, including the wording.
func TestDiagram(t *testing.T) {
	text, err := os.ReadFile("../../docs/states/node-fault.md")
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`(?m)^ +(\S+ --> \S+ : .+)$`).FindAllString(string(text), -1)
	for i := range got {
		got[i] = strings.TrimSpace(got[i])
	}
	var want []string
	for _, tr := range nodefault.UsualPhaseTransitions() {
		want = append(want, fmt.Sprintf("%s --> %s : %s", tr.From, tr.To, tr.When))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-table +diagram):\n%s", diff)
	}
}

func TestNothingIsDoneFromAnywhere(t *testing.T) {
	for _, from := range []v1alpha1.Phase{"", v1alpha1.PhaseObserved, v1alpha1.PhasePending, v1alpha1.PhaseDryRun, v1alpha1.PhaseOverridden, v1alpha1.PhaseHealthy, v1alpha1.PhaseGone} {
		for _, to := range []v1alpha1.Phase{v1alpha1.PhaseDraining, v1alpha1.PhaseRemediating} {
			if nodefault.CanTransition(from, to) {
				t.Errorf("a node that is %q can become %q without being quarantined first", from, to)
			}
		}
	}
}

// TestHistory verifies the guarantees of a history: numbers without gaps, unique ids, a
// size limit, and that a dropped record was processed or is counted.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st := &v1alpha1.NodeFaultStatus{NodeUID: "n", Session: "s"}
		if rapid.Bool().Draw(t, "a sink") {
			st.SinkDeliveries = map[string]v1alpha1.DeliveryStatus{"pager": {}}
		}
		told := 0
		for i := range rapid.IntRange(1, 150).Draw(t, "records") {
			ordinal := fmt.Sprint(rapid.IntRange(0, 200).Draw(t, "ordinal"))
			r := nodefault.NewRecord(st, "test", "cordon", ordinal, time.Unix(int64(i), 0))
			if !nodefault.HasRecord(st, r.ID) {
				told++
			}
			nodefault.AppendRecordOnceAndTrim(st, r)
			if d, is := st.SinkDeliveries["pager"]; is && rapid.Bool().Draw(t, "taken") {
				d.ProcessedSequence = min(st.LastSequence, d.ProcessedSequence+int64(rapid.IntRange(0, 5).Draw(t, "so many")))
				st.SinkDeliveries["pager"] = d
			}
		}
		if st.LastSequence != int64(told) || len(st.History) > 64 {
			t.Fatalf("%d were told, the last is number %d, and %d are kept", told, st.LastSequence, len(st.History))
		}
		for i, r := range st.History {
			if r.Sequence != st.LastSequence-int64(len(st.History)-1-i) {
				t.Fatalf("number %d stands at place %d of %d", r.Sequence, i, len(st.History))
			}
		}
		if first := st.History[0].Sequence; first-1 > nodefault.ProcessedByAllSinks(st)+st.Dropped {
			t.Fatalf("all before number %d are dropped, %d are settled, and %d count as dropped", first, nodefault.ProcessedByAllSinks(st), st.Dropped)
		}
	})
}

func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, most := rapid.String().Draw(t, "text"), rapid.IntRange(3, 40).Draw(t, "most")
		got := nodefault.TruncateText(text, most)
		if len(got) > most || !utf8.ValidString(got) || len(text) <= most && got != text {
			t.Fatalf("%q cut to %d bytes is %q", text, most, got)
		}
	})
}
