package history

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/reliability.md anew")

const publishedPage = "../../../docs/reliability.md"

// TestPage holds that the page shows the published runs, and that none of them has a violation.
func TestPage(t *testing.T) {
	t.Parallel()
	runs := readRuns(t, filepath.Join("testdata", "runs"))
	planted := readRuns(t, filepath.Join("testdata", "planted"))
	for _, s := range runs {
		if n := s.countViolations(); n > 0 || s.Bug != "" {
			t.Errorf("the run with seed %d has %d violations and the bug %q, want none", s.Seed, n, s.Bug)
		}
		if s.Revision == "unknown" || strings.HasSuffix(s.Revision, "-dirty") {
			t.Errorf("the run with seed %d is of revision %q, want a commit", s.Seed, s.Revision)
		}
	}
	for _, s := range planted {
		if !slices.ContainsFunc(s.Promises, func(p PromiseSummary) bool {
			number, _ := splitPromise(p.Promise)
			return number != "" && number == s.Bug && p.Violations > 0
		}) {
			t.Errorf("the run with the planted bug %q has no violation of its promise", s.Bug)
		}
	}
	var page strings.Builder
	if err := WriteMarkdownPage(&page, runs, planted); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(publishedPage, []byte(page.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.ReadFile(publishedPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(old), page.String()); diff != "" {
		t.Errorf("docs/reliability.md is not up to date, run this test with -update:\n-is +want\n%s", diff)
	}
}

func readRuns(t *testing.T, dir string) []Summary {
	t.Helper()
	list, err := ReadSummaries(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatalf("no runs in %s", dir)
	}
	return list
}

// TestPageSums holds that runs in which a checker had nothing to check do not count for its promise, and
// that each checker has a description.
func TestPageSums(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 29, 20, 0, 0, 0, time.UTC)
	runs := []Summary{
		{Run: Run{Began: began, Seed: 7}, Faults: map[string]int{"kill": 3}, Promises: []PromiseSummary{{"R12 bounded resources", 10, 0}, {"R2 stable event ids", 5, 1}}},
		{Run: Run{Began: began, Seed: 8}, Faults: map[string]int{"cut": 2}, Promises: []PromiseSummary{{"R12 bounded resources", 0, 0}, {"R2 stable event ids", 6, 0}}},
	}
	want := []promiseTotal{{"R2 stable event ids", 2, 5, 11, 1}, {"R12 bounded resources", 1, 3, 10, 0}}
	got := slices.DeleteFunc(sumPromises(runs), func(p promiseTotal) bool { return p.checked == 0 })
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(promiseTotal{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, r := range RunAllCheckers(Config{Upgrade: true, Restore: true}, nil) {
		if describeChecker(r.Promise) == "" {
			t.Errorf("the checker %q has no description", r.Promise)
		}
	}
}
