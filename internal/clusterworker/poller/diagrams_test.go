package poller_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
)

var diagramArrow = regexp.MustCompile(`(?m)^ +(\S+) --> (\S+)(?: : .+)?$`)

// readDiagram returns the arrows of a document's state diagram, sorted.
func readDiagram(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/states/" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, diagram, ok := strings.Cut(string(text), "```mermaid\nstateDiagram-v2\n")
	diagram, _, end := strings.Cut(diagram, "\n```")
	if !ok || !end {
		t.Fatalf("%s has no state diagram", file)
	}
	var out []string
	for _, m := range diagramArrow.FindAllStringSubmatch(diagram, -1) {
		out = append(out, m[1]+" --> "+m[2])
	}
	if n := strings.Count(diagram, "\n") + 1; n != len(out) {
		t.Fatalf("%s: of %d lines %d are arrows", file, n, len(out))
	}
	slices.Sort(out)
	return out
}

// formatTransitions formats transitions as the diagrams do.
func formatTransitions[S ~string](states []S, next func(S) []S) []string {
	name := func(s S) string {
		if s == "" {
			return "[*]"
		}
		return string(s)
	}
	var out []string
	for _, from := range states {
		for _, to := range next(from) {
			out = append(out, fmt.Sprintf("%s --> %s", name(from), name(to)))
		}
	}
	slices.Sort(out)
	return out
}

func TestDiagrams(t *testing.T) {
	shoots := append(formatTransitions(poller.ListShootStatuses(), poller.ListNextStatuses), "deleted --> [*]")
	syncs := append(formatTransitions(poller.ListSyncStates(), poller.ListNextSyncStates), "[*] --> pending")
	for file, want := range map[string][]string{"shoot-status.md": shoots, "cluster-sync.md": syncs} {
		slices.Sort(want)
		if diff := cmp.Diff(want, readDiagram(t, file)); diff != "" {
			t.Errorf("%s (-table +diagram):\n%s", file, diff)
		}
	}
}

// TestRulesAreDocumented: the document's table has the rules' reasons, in their order.
func TestRulesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/states/shoot-status.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []poller.StatusReason
	for _, m := range regexp.MustCompile("(?m)^\\| \\d+ \\|.*\\| `(\\w+)` \\|$").FindAllStringSubmatch(string(text), -1) {
		got = append(got, poller.StatusReason(m[1]))
	}
	if diff := cmp.Diff(poller.ListStatusReasons(), got); diff != "" {
		t.Errorf("(-code +document):\n%s", diff)
	}
}
