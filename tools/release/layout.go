package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// NewIndex returns one index of the images of a program and of the SBOM of each. It has one image per
// architecture, sorted by architecture.
//
// An SBOM is an artifact whose subject is the image: a registry with the index lists it among the
// image's referrers. Its platform is unknown, as other builders write it, so that no node uses it
// as an image.
func NewIndex(programs ...*Program) (v1.ImageIndex, error) {
	if len(programs) == 0 {
		return nil, errors.New("create index: no program")
	}
	programs = slices.SortedFunc(slices.Values(programs), func(a, b *Program) int { return strings.Compare(a.Architecture, b.Architecture) })
	var images, artifacts []mutate.IndexAddendum
	for i, p := range programs {
		if i > 0 && (p.Name != programs[0].Name || p.Architecture == programs[i-1].Architecture) {
			return nil, fmt.Errorf("create index of %q: %q for %s is a different program or a duplicate", programs[0].Name, p.Name, p.Architecture)
		}
		if p.Version != programs[0].Version || p.Revision != programs[0].Revision {
			return nil, fmt.Errorf("create index of %q: version is %s for %s but %s for %s: the source changed between the builds: build again",
				p.Name, programs[0].Version, programs[0].Architecture, p.Version, p.Architecture)
		}
		img, err := p.BuildImage()
		if err != nil {
			return nil, err
		}
		list, err := p.newSBOMArtifact(img)
		if err != nil {
			return nil, err
		}
		images = append(images, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: p.Architecture},
		}})
		artifacts = append(artifacts, mutate.IndexAddendum{Add: list, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"},
		}})
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), append(images, artifacts...)...)
	return mutate.Annotations(index, programs[0].OCILabels()).(v1.ImageIndex), nil //nolint:errcheck,forcetypeassert // it gives back what it was given
}

// SBOM returns the bill of materials of the image of p.
func (p *Program) SBOM() ([]byte, error) {
	return EncodeSBOM(SBOMSubject{Name: p.Name, Data: p.data, Build: p.build, Created: p.Created, Beside: []debug.Module{p.roots.Module}})
}

// newSBOMArtifact wraps the SBOM of img in an artifact.
func (p *Program) newSBOMArtifact(img v1.Image) (v1.Image, error) {
	text, err := p.SBOM()
	if err != nil {
		return nil, err
	}
	subject, err := partial.Descriptor(img)
	if err != nil {
		return nil, fmt.Errorf("describe image of %q: %w", p.Name, err)
	}
	subject.ArtifactType = "" // it is an image
	return newArtifact(SBOMMediaType, text, *subject)
}

// An artifact is a manifest for one document.
type artifact struct {
	manifest []byte
	document v1.Layer
	config   v1.Layer
}

// emptyConfig is the configuration type of artifacts in the OCI specification.
const emptyConfig types.MediaType = "application/vnd.oci.empty.v1+json"

func newArtifact(kind types.MediaType, document []byte, subject v1.Descriptor) (v1.Image, error) {
	a := &artifact{document: static.NewLayer(document, kind), config: static.NewLayer([]byte("{}"), emptyConfig)}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: string(kind), Subject: &subject}
	config, err := partial.Descriptor(a.config)
	if err != nil {
		return nil, err
	}
	layer, err := partial.Descriptor(a.document)
	if err != nil {
		return nil, err
	}
	manifest.Config, manifest.Layers = *config, []v1.Descriptor{*layer}
	if a.manifest, err = json.Marshal(manifest); err != nil {
		return nil, fmt.Errorf("encode artifact manifest: %w", err)
	}
	return partial.CompressedToImage(a)
}

// RawManifest implements partial.CompressedImageCore.
func (a *artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// RawConfigFile implements partial.CompressedImageCore.
func (*artifact) RawConfigFile() ([]byte, error) { return []byte("{}"), nil }

// MediaType implements partial.CompressedImageCore.
func (*artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (a *artifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	for _, layer := range []v1.Layer{a.document, a.config} {
		if d, err := layer.Digest(); err != nil || d == digest {
			return layer, err
		}
	}
	return nil, fmt.Errorf("artifact has no layer %s", digest)
}

// WriteOCILayout writes an OCI layout with index under tag to dir, and replaces existing content.
func WriteOCILayout(dir, tag string, index v1.ImageIndex) error {
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil { //nolint:gosec // images are for everyone to read
		return fmt.Errorf("write layout %q: %w", dir, err)
	}
	temporary, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+"-")
	if err != nil {
		return fmt.Errorf("write layout %q: %w", dir, err)
	}
	defer os.RemoveAll(temporary) //nolint:errcheck // gone when all went well
	path, err := layout.Write(temporary, empty.Index)
	if err != nil {
		return fmt.Errorf("write layout %q: %w", dir, err)
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})); err != nil {
		return fmt.Errorf("write layout %q: %w", dir, err)
	}
	if err := makeWorldReadable(temporary); err != nil {
		return fmt.Errorf("write layout %q: %w", dir, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("replace layout %q: %w", dir, err)
	}
	if err := os.Rename(temporary, dir); err != nil {
		return fmt.Errorf("replace layout %q: %w", dir, err)
	}
	return nil
}

// makeWorldReadable makes the content of dir readable for all users. Files that were created as
// temporary files are only readable by their owner.
func makeWorldReadable(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if entry.IsDir() {
			mode = 0o755
		}
		return os.Chmod(path, mode) //nolint:gosec // nobody else writes there
	})
}
