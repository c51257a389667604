package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/devstack/proof/faults"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

// TestBugsCompile holds that each bug can be planted in the present source and compiled, and that it names a
// promise that has a checker.
func TestBugsCompile(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	promises := map[string]bool{}
	for _, r := range history.RunAllCheckers(history.Config{Restore: true, Upgrade: true}, nil) {
		number, _, _ := strings.Cut(r.Promise, " ")
		promises[number] = true
	}
	var seen []string
	for _, b := range listBugs() {
		if slices.Contains(seen, b.Promise) || !promises[b.Promise] {
			t.Errorf("bug %q is there twice, or has no checker", b.Promise)
		}
		seen = append(seen, b.Promise)
		if kinds, err := faults.ParseKinds(b.Faults); b.Faults != "" && (err != nil || len(kinds) == 0) {
			t.Errorf("bug %q: faults %q: %v", b.Promise, b.Faults, err)
		}
		t.Run(b.Promise, func(t *testing.T) {
			t.Parallel()
			o := newTestOverlay(t)
			if err := o.addBug(b, root); err != nil {
				t.Fatal(err)
			}
			buildWith(t, o, "./"+path.Dir(b.File))
		})
	}
}

func TestBugThatDoesNotApply(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package a // a a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"b", "a"} {
		if err := newTestOverlay(t).addBug(plantedBug{Promise: "R0", File: "a.go", Old: old}, dir); err == nil || !strings.Contains(err.Error(), "want once") {
			t.Errorf("%q: %v", old, err)
		}
	}
	if _, err := findBug("R99"); err == nil || !strings.Contains(err.Error(), "R19") {
		t.Errorf("an unknown bug: %v", err)
	}
}
