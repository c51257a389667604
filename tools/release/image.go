package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// UID is the user and group id of the program.
const UID = 65532

// ImageUser is UID in the format of images. It is numeric, so that a node can verify that it is not root
// without reading the image.
var ImageUser = strconv.Itoa(UID) + ":" + strconv.Itoa(UID) //nolint:gochecknoglobals // a constant that needs a function

// Licenses is the license of the programs.
const Licenses = "Apache-2.0"

// A File is one entry of an image's only layer. It is owned by root, so that the program cannot
// change it.
type File struct {
	Name string // without a leading slash; the name of a folder ends in one
	Mode int64  // permission bits, and those above them
	Data []byte // nil for a folder
}

// ImageFiles returns the content of the image of p, folders before their entries.
func (p *Program) ImageFiles() []File {
	return []File{
		{Name: "etc/", Mode: 0o755},
		{Name: "etc/group", Mode: 0o644, Data: fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", UID)},
		{Name: "etc/passwd", Mode: 0o644, Data: fmt.Appendf(nil,
			"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/tmp:/sbin/nologin\n", UID, UID)},
		{Name: "etc/ssl/", Mode: 0o755},
		{Name: "etc/ssl/certs/", Mode: 0o755},
		{Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Data: p.roots.PEM},
		{Name: p.Name, Mode: 0o755, Data: p.data},
		{Name: "tmp/", Mode: 0o1777},
	}
}

// BuildImage returns the image of one program.
func (p *Program) BuildImage() (v1.Image, error) {
	layer, err := p.newLayer()
	if err != nil {
		return nil, fmt.Errorf("create layer of %q: %w", p.Name, err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: p.Created}, CreatedBy: "tools/release " + p.Name},
	})
	if err != nil {
		return nil, fmt.Errorf("append layer of %q: %w", p.Name, err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read image configuration of %q: %w", p.Name, err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", p.Architecture
	config.Created = v1.Time{Time: p.Created}
	config.Config = v1.Config{
		User:       ImageUser,
		Entrypoint: []string{"/" + p.Name},
		WorkingDir: "/",
		Labels:     p.OCILabels(),
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, fmt.Errorf("set image configuration of %q: %w", p.Name, err)
	}
	return withAnnotations(img, p.OCILabels()), nil
}

// OCILabels returns the program's metadata and source, with the names of the OCI specification's
// annotations.
func (p *Program) OCILabels() map[string]string {
	const prefix = "org.opencontainers.image."
	labels := map[string]string{
		prefix + "title":    p.Name,
		prefix + "source":   "https://" + p.build.Main.Path,
		prefix + "licenses": Licenses,
		prefix + "version":  p.Version,
		prefix + "created":  p.Created.UTC().Format(time.RFC3339),
	}
	if p.Revision != "" {
		labels[prefix+"revision"] = p.Revision
	}
	return labels
}

// newLayer returns a tar of the files, in their order, all with the same time.
func (p *Program) newLayer() (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range p.ImageFiles() {
		h := &tar.Header{Name: f.Name, Mode: f.Mode, Size: int64(len(f.Data)), ModTime: p.Created, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if f.Data == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching, tarball.WithCompressionLevel(gzip.DefaultCompression))
}

func withAnnotations(img v1.Image, with map[string]string) v1.Image {
	return mutate.Annotations(img, with).(v1.Image) //nolint:errcheck,forcetypeassert // it gives back what it was given
}
