package deploy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fleetloop/fleetloop/deploy"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWriteReleaseManifests: only what names our own version is changed.
func TestWriteReleaseManifests(t *testing.T) {
	const other = "kubeVersion: dev\nimage: example.com/fleetloop/other:dev2\nversion: dev\n"
	src, dst := filepath.Join(t.TempDir(), "deploy"), filepath.Join(t.TempDir(), "out")
	writeFile(t, src+"/chart/Chart.yaml", "version: 0.0.0-dev\nappVersion: dev\n")
	writeFile(t, src+"/kustomize/a.yaml", "  app.kubernetes.io/version: dev\n  image: fleetloop/sentinel:dev\n"+other)
	writeFile(t, src+"/a.go", "package a\n")
	writeFile(t, dst+"/former.yaml", "")
	if err := deploy.WriteReleaseManifests(src, dst, "1.2.3"); err != nil {
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

// TestWriteReleaseManifestsKeepsSource: the folder that is replaced is never the source.
func TestWriteReleaseManifestsKeepsSource(t *testing.T) {
	src := filepath.Join(t.TempDir(), "deploy")
	writeFile(t, src+"/a.yaml", "a: b\n")
	for _, dst := range []string{src, src + "/", filepath.Dir(src), src + "/out"} {
		if err := deploy.WriteReleaseManifests(src, dst, "dev"); err == nil {
			t.Errorf("manifests were written to %s", dst)
		}
		if _, err := os.Stat(src + "/a.yaml"); err != nil {
			t.Fatal(err)
		}
	}
}
