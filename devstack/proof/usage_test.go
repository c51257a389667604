package main

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
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

// TestSubtractUsage holds that each process is compared with itself, also if another one has ended meanwhile.
func TestSubtractUsage(t *testing.T) {
	t.Parallel()
	earlier := []scaleUsage{{"adapter-0", 10, 1}, {"compiler", 10, 5}, {"etcd", 10, 2}}
	later := []scaleUsage{{"adapter-0", 20, 1.5}, {"etcd", 30, 4}, {"sentinel-0", 40, 3}}
	want := []scaleUsage{{"adapter-0", 20, 0.5}, {"etcd", 30, 2}, {"sentinel-0", 40, 3}}
	if got := subtractUsage(later, earlier); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
