package main

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A client accesses a registry as tools for push and pull do.
type client struct {
	t    *testing.T
	base string
}

func (c client) do(method, path string, kind types.MediaType, body []byte, want int) []byte {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", string(kind))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if answer.StatusCode != want {
		c.t.Fatalf("%s %s: %s, want %d\n%s", method, path, answer.Status, want, text)
	}
	return text
}

// push uploads each image of the index, including artifacts, and then the index.
func (c client) push(index v1.ImageIndex, tag string) {
	c.t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		img, err := index.Image(m.Digest)
		if err != nil {
			c.t.Fatal(err)
		}
		inner, err := img.Manifest()
		if err != nil {
			c.t.Fatal(err)
		}
		for _, d := range append(inner.Layers, inner.Config) {
			c.do(http.MethodPost, "/blobs/uploads/?digest="+d.Digest.String(), d.MediaType, c.blob(img, d), http.StatusCreated)
		}
		raw, err := img.RawManifest()
		if err != nil {
			c.t.Fatal(err)
		}
		c.do(http.MethodPut, "/manifests/"+m.Digest.String(), m.MediaType, raw, http.StatusCreated)
	}
	raw, err := index.RawManifest()
	if err != nil {
		c.t.Fatal(err)
	}
	c.do(http.MethodPut, "/manifests/"+tag, manifest.MediaType, raw, http.StatusCreated)
}

func (c client) blob(img v1.Image, d v1.Descriptor) []byte {
	c.t.Helper()
	layer, err := img.LayerByDigest(d.Digest)
	if err != nil {
		c.t.Fatal(err)
	}
	content, err := layer.Compressed()
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	data, err := io.ReadAll(content)
	if err != nil {
		c.t.Fatal(err)
	}
	return data
}

// TestPush: a registry that is given the layout takes every part of it, and
// lists the SBOM among the image's referrers.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	c := client{t: t, base: server.URL + "/v2/fleetloop/sentinel"}
	c.push(newIndex(t, "sentinel"), "v1")

	index, err := v1.ParseIndexManifest(bytes.NewReader(c.do(http.MethodGet, "/manifests/v1", "", nil, http.StatusOK)))
	if err != nil {
		t.Fatal(err)
	}
	var mine *v1.Descriptor
	for i, m := range index.Manifests {
		if m.Platform.Satisfies(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}) {
			mine = &index.Manifests[i]
		}
	}
	if mine == nil {
		t.Fatalf("no image for %s among %+v", runtime.GOARCH, index.Manifests)
	}
	if want, err := newImage(t, "sentinel").Digest(); err != nil || mine.Digest != want {
		t.Errorf("a node gets %s, want %s (%v)", mine.Digest, want, err)
	}
	referrers, err := v1.ParseIndexManifest(bytes.NewReader(c.do(http.MethodGet, "/referrers/"+mine.Digest.String(), "", nil, http.StatusOK)))
	if err != nil {
		t.Fatal(err)
	}
	if len(referrers.Manifests) != 1 {
		t.Fatalf("referrers: %+v", referrers.Manifests)
	}
	artifact, err := v1.ParseManifest(bytes.NewReader(c.do(http.MethodGet, "/manifests/"+referrers.Manifests[0].Digest.String(), "", nil, http.StatusOK)))
	if err != nil {
		t.Fatal(err)
	}
	if artifact.ArtifactType != SBOMMediaType {
		t.Errorf("the referrer is a %q, want %q", artifact.ArtifactType, SBOMMediaType)
	}
	got := c.do(http.MethodGet, "/blobs/"+artifact.Layers[0].Digest.String(), "", nil, http.StatusOK)
	want, err := os.ReadFile(filepath.Join(made.dir, "sentinel."+runtime.GOARCH+".spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the artifact is not the SBOM that stands beside the layout")
	}
}
