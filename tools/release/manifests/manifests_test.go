package manifests_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fleetloop/fleetloop/tools/release/manifests"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWrite: only what names our own version is changed.
func TestWrite(t *testing.T) {
	const other = "kubeVersion: dev\nimage: example.com/fleetloop/other:dev2\nversion: dev\n"
	src, dst := filepath.Join(t.TempDir(), "deploy"), filepath.Join(t.TempDir(), "out")
	write(t, src+"/chart/Chart.yaml", "version: 0.0.0-dev\nappVersion: dev\n")
	write(t, src+"/kustomize/a.yaml", "  app.kubernetes.io/version: dev\n  image: fleetloop/sentinel:dev\n"+other)
	write(t, src+"/a.go", "package a\n")
	write(t, dst+"/former.yaml", "")
	if err := manifests.WriteStampedManifests(src, dst, "1.2.3"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/chart/Chart.yaml": "version: \"1.2.3\"\nappVersion: \"1.2.3\"\n",
		"/kustomize/a.yaml": "  app.kubernetes.io/version: 1.2.3\n  image: fleetloop/sentinel:1.2.3\n" + other,
	} {
		if got, err := os.ReadFile(dst + path); err != nil || string(got) != want {
			t.Errorf("%s: %v, %q, want %q", path, err, got, want)
		}
	}
	for _, path := range []string{"/a.go", "/former.yaml"} {
		if _, err := os.Stat(dst + path); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", path, err)
		}
	}
}

// TestWriteKeepsSource: the folder that is replaced is never the source.
func TestWriteKeepsSource(t *testing.T) {
	src := filepath.Join(t.TempDir(), "deploy")
	write(t, src+"/a.yaml", "a: b\n")
	for _, dst := range []string{src, src + "/", filepath.Dir(src), src + "/out"} {
		if err := manifests.WriteStampedManifests(src, dst, "dev"); err == nil {
			t.Errorf("manifests were written to %s", dst)
		}
		if _, err := os.Stat(src + "/a.yaml"); err != nil {
			t.Fatal(err)
		}
	}
}
