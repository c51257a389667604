package execution_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

func name(p v1alpha1.Phase) string {
	if p == v1alpha1.PhaseNew {
		return "[*]"
	}
	return string(p)
}

// TestDiagram holds that the diagram in the documents is the table of transitions,
// words included.
func TestDiagram(t *testing.T) {
	text, err := os.ReadFile("../../docs/states/execution.md")
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`(?m)^ +(\S+ --> \S+ : .+)$`).FindAllString(string(text), -1)
	for i := range got {
		got[i] = strings.TrimSpace(got[i])
	}
	var want []string
	for _, tr := range execution.Transitions() {
		want = append(want, fmt.Sprintf("%s --> %s : %s", name(tr.From), name(tr.To), tr.When))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-table +diagram):\n%s", diff)
	}
}

// TestEnds holds that a phase that is over is not left, and that every other one is,
// for an end.
func TestEnds(t *testing.T) {
	leads := map[v1alpha1.Phase][]v1alpha1.Phase{}
	for _, tr := range execution.Transitions() {
		leads[tr.From] = append(leads[tr.From], tr.To)
		if execution.IsFinal(tr.From) {
			t.Errorf("%s is left for %s", tr.From, tr.To)
		}
	}
	for from, to := range leads {
		if from != v1alpha1.PhaseNew && !slices.Contains(to, v1alpha1.PhaseFailed) {
			t.Errorf("%s does not lead to failed: what is stuck there never ends", from)
		}
	}
	for _, p := range []v1alpha1.Phase{v1alpha1.PhaseValidating, v1alpha1.PhaseWaitingApproval, v1alpha1.PhaseCompleted} {
		if execution.CanTransition(p, p) || execution.CanTransition(p, v1alpha1.PhaseNew) {
			t.Errorf("%s leads back", p)
		}
	}
}
