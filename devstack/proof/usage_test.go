package main

import (
	"io/fs"
	"os"
	"regexp"
	"testing"
)

// TestMemoryLimits holds that processes run with the GOMEMLIMIT of the manifests.
func TestMemoryLimits(t *testing.T) {
	t.Parallel()
	manifests := os.DirFS("../../deploy/kustomize")
	setting := regexp.MustCompile(`name: GOMEMLIMIT\s+value: (\S+)\s+image: fleetloop/([a-z-]+):`)
	want := map[string]string{}
	err := fs.WalkDir(manifests, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(manifests, path)
		for _, m := range setting.FindAllStringSubmatch(string(text), -1) {
			want[m[2]] = m[1]
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range memoryLimits() {
		got := (&topology{}).newProcess(name+"-0", name).env["GOMEMLIMIT"]
		if got == "" || got != want[name] {
			t.Errorf("%s runs with GOMEMLIMIT %q, the manifests have %q", name, got, want[name])
		}
	}
}
