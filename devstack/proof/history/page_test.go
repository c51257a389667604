package history

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reliability.md")

// TestPage holds that the published page is that of the committed runs, and that the tests that it names
// exist.
func TestPage(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := WritePage(&out, readRuns(t)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(moduleRoot, "docs/reliability.md")
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil { //nolint:gosec // a page
			t.Fatal(err)
		}
	}
	if readSource(t, path) != out.String() {
		t.Error("docs/reliability.md is out of date: run 'go test ./devstack/proof/history -run TestPage -update'")
	}
	for _, b := range FoundBugs() {
		dir, name, _ := strings.Cut(b.Test, " ")
		if !hasTest(t, filepath.Join(moduleRoot, dir), name) {
			t.Errorf("%s: package %s has no test %s", b.What, dir, name)
		}
	}
}

// readRuns returns the published runs. None of them has a violation, and each has items to check.
func readRuns(t *testing.T) []Summary {
	t.Helper()
	paths, err := filepath.Glob("testdata/runs/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no published runs: %v", err)
	}
	runs := make([]Summary, len(paths))
	for i, path := range paths {
		if err := json.Unmarshal([]byte(readSource(t, path)), &runs[i]); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if strings.HasSuffix(runs[i].Revision, "-dirty") || runs[i].Revision == "" {
			t.Errorf("%s: the revision is %q, want a commit", path, runs[i].Revision)
		}
	}
	return runs
}

// TestSums holds that a page sums the runs, and shows their violations.
func TestSums(t *testing.T) {
	t.Parallel()
	run := Summary{
		Run: Run{Revision: "0123456789abcdef", Seed: 7, Clusters: 50, Minutes: 1.5, Broker: "nats"}, Faults: map[string]int{"kill": 2, "cut": 1},
		Promises:  []PromiseSummary{{"R1 no lost wake-up", 10, 1}, {"R2 ids", 5, 0}},
		Latencies: []LatencySummary{{Name: "wake-up", P50: 1000, P99: 2000}},
	}
	other := Summary{Promises: []PromiseSummary{{"R1 no lost wake-up", 4, 0}}}
	var out strings.Builder
	if err := WritePage(&out, []Summary{run, other}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| R1 no lost wake-up | 2 | 14 | 3 | 1 |", "| R2 ids | 1 | 5 | 3 | 0 |",
		"`0123456789` | `SEED=7 CLUSTERS=50 MINUTES=1.5` | nats | 1 cut, 2 kill | 1µs, 2µs |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, out.String())
		}
	}
}
