package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// small holds one small program for each architecture, built once for all tests.
var small = struct {
	dir  string
	once func() error
}{}

// buildSmall builds a program without imports, so that little is compiled for the other architecture.
func buildSmall() error {
	if err := os.MkdirAll(small.dir, 0o750); err != nil {
		return err
	}
	source := map[string]string{
		"go.mod":  "module example.org/small\n\ngo 1.26.0\n",
		"main.go": "package main\n\nfunc main() { println(\"small\") }\n",
	}
	for name, text := range source {
		if err := os.WriteFile(filepath.Join(small.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		cmd := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(small.dir, architecture, "small"), ".")
		cmd.Dir = small.dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture, "GOFLAGS=-mod=mod", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return errors.New(string(out))
		}
	}
	return nil
}

func newRoots(t *testing.T) CertificateRoots {
	t.Helper()
	roots, err := ParseCertificateRoots([]byte("# a.org/roots v1.0.0\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	if err != nil {
		t.Fatal(err)
	}
	return roots
}

// newProgram opens the small program, with a fixed date.
func newProgram(t *testing.T, architecture string) *Program {
	t.Helper()
	if err := small.once(); err != nil {
		t.Fatal(err)
	}
	p, err := OpenProgram(filepath.Join(small.dir, architecture, "small"), newRoots(t), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newProgramIndex(t *testing.T, programs ...*Program) v1.ImageIndex {
	t.Helper()
	index, err := NewIndex(programs...)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func TestImage(t *testing.T) {
	p := newProgram(t, "arm64")
	img, err := p.BuildImage()
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != "arm64" || !config.Created.Equal(p.Created) {
		t.Errorf("image of %s/%s, created %s", config.OS, config.Architecture, config.Created)
	}
	labels := map[string]string{
		"org.opencontainers.image.title":    "small",
		"org.opencontainers.image.source":   "https://example.org/small",
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.version":  "dev",
		"org.opencontainers.image.created":  "2026-03-01T12:00:00Z",
	}
	want := v1.Config{User: "65532:65532", Entrypoint: []string{"/small"}, WorkingDir: "/", Labels: labels}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(labels, manifest.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if manifest.MediaType != types.OCIManifestSchema1 || manifest.Config.MediaType != types.OCIConfigJSON || manifest.Layers[0].MediaType != types.OCILayer {
		t.Errorf("not of OCI's types throughout: %+v", manifest)
	}
}

// TestLayer: there is the program and what it needs, nothing else, and
// nothing that it may change but one folder.
func TestLayer(t *testing.T) {
	p := newProgram(t, "amd64")
	img, err := p.BuildImage()
	if err != nil {
		t.Fatal(err)
	}
	files := mutate.Extract(img)
	defer func() { _ = files.Close() }()
	got := map[string]int64{}
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(p.Created) {
			t.Errorf("%s belongs to %d:%d and is of %s", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		got[h.Name] = h.Mode
	}
	want := map[string]int64{
		"etc": 0o755, "etc/group": 0o644, "etc/passwd": 0o644,
		"etc/ssl": 0o755, "etc/ssl/certs": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644,
		"small": 0o755, "tmp": 0o1777,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestIndex checks that nodes find their image for any order of programs, and never use an SBOM as
// an image.
func TestIndex(t *testing.T) {
	index := newProgramIndex(t, newProgram(t, "arm64"), newProgram(t, "amd64"))
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range manifest.Manifests {
		got = append(got, m.Platform.String())
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64", "unknown/unknown", "unknown/unknown"}, got); diff != "" {
		t.Fatalf("platforms (-want +got):\n%s", diff)
	}
	for i := range 2 {
		artifact, err := index.Image(manifest.Manifests[2+i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		m, err := artifact.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject == nil || m.Subject.Digest != manifest.Manifests[i].Digest || m.ArtifactType != SBOMMediaType {
			t.Errorf("artifact %d is a %q about %v, want the SBOM of image %d", i, m.ArtifactType, m.Subject, i)
		}
	}
}

func TestIndexRefuses(t *testing.T) {
	amd64, other := newProgram(t, "amd64"), newProgram(t, "arm64")
	other.Revision = "of another day"
	for name, programs := range map[string][]*Program{
		"Nothing":         nil,
		"Twice":           {amd64, amd64},
		"AnotherRevision": {amd64, other},
	} {
		if _, err := NewIndex(programs...); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}

// TestReproducible: the same programs give the same bytes, file by file, in
// place of whatever was there.
func TestReproducible(t *testing.T) {
	dirs := [2]string{filepath.Join(t.TempDir(), "a", "small"), t.TempDir()}
	if err := os.WriteFile(filepath.Join(dirs[1], "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var got [2]map[string]string
	for i, dir := range dirs {
		p := newProgram(t, "amd64")
		if err := WriteOCILayout(dir, p.Version, newProgramIndex(t, p, newProgram(t, "arm64"))); err != nil {
			t.Fatal(err)
		}
		got[i] = tree(t, dir)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(got[0])), slices.Sorted(maps.Keys(got[1]))); diff != "" {
		t.Fatalf("files:\n%s", diff)
	}
	for name := range got[0] {
		if got[0][name] != got[1][name] {
			t.Errorf("%s differs", name)
		}
	}
	index, err := layout.ImageIndexFromPath(dirs[1])
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "dev" {
		t.Fatalf("entries of the layout: %+v", manifest.Manifests)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		inner, err := index.ImageIndex(manifest.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		images, err := partial.FindImages(inner, match.Platforms(v1.Platform{OS: "linux", Architecture: architecture}))
		if err != nil || len(images) != 1 {
			t.Fatalf("images for %s: %v, %v", architecture, images, err)
		}
		if err := validate.Image(images[0]); err != nil {
			t.Errorf("the image for %s: %v", architecture, err)
		}
	}
}

// tree returns the files under dir with their modes.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path) //nolint:gosec // nobody else writes there
		files[strings.TrimPrefix(path, dir)+" "+info.Mode().String()] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestOpenRefuses checks that a program that would not run in an image is rejected at build time.
func TestOpenRefuses(t *testing.T) {
	newProgram(t, "amd64")
	program, err := os.ReadFile(filepath.Join(small.dir, "amd64", "small"))
	if err != nil {
		t.Fatal(err)
	}
	// change writes one field of the ELF header or of its first program header.
	change := func(offset int, value []byte) []byte {
		b := bytes.Clone(program)
		copy(b[offset:], value)
		return b
	}
	headers := int(binary.LittleEndian.Uint64(program[32:]))
	for name, tc := range map[string]struct {
		data []byte
		want string
	}{
		"NotELF":        {data: []byte("#!/bin/sh\n"), want: "not a Linux executable"},
		"Interpreter":   {data: change(headers, []byte{3, 0, 0, 0}), want: "CGO_ENABLED=0"},
		"OtherMachine":  {data: change(18, []byte{243, 0}), want: "must be amd64 or arm64"},
		"NotGo":         {data: bytes.ReplaceAll(program, []byte("\xff Go buildinf:"), []byte("\xff no buildinf:")), want: "build information"},
		"NoSuchProgram": {want: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "program")
			if tc.data != nil {
				if err := os.WriteFile(path, tc.data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := OpenProgram(path, newRoots(t), time.Time{}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestParseRootsRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"Empty":          "",
		"NoModule":       "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"NoCertificates": "# a.org/roots v1.0.0\n",
	} {
		if _, err := ParseCertificateRoots([]byte(text)); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}
