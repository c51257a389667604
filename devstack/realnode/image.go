package realnode

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
)

// ImageProgram is the path of the program in an image.
const ImageProgram = "/app"

// WriteImage writes an image of this machine's platform as an archive, as "ctr images
// import" and "docker load" read it. The program runs as its entry point, by user
// 65532; name has a tag, as in localhost/fleetloop/sentinel:1.
func WriteImage(w io.Writer, name, program string) error {
	return writeImage(
		w,
		name,
		map[string]string{ImageProgram: program},
		map[string]any{"Entrypoint": []string{ImageProgram}, "Env": []string{"PATH=/"}, "User": "65532:65532"},
	)
}

// WriteFilesImage writes an image with programs of this machine, by their paths in the
// image, and without an entry point. The files have to include the libraries of the
// programs. They run as the user of the pod.
func WriteFilesImage(w io.Writer, name string, files map[string]string) error {
	return writeImage(w, name, files, map[string]any{"Env": []string{"PATH=/bin"}})
}

func writeImage(w io.Writer, name string, files map[string]string, imageConfig map[string]any) error {
	var all []file
	for _, at := range slices.Sorted(maps.Keys(files)) {
		text, err := os.ReadFile(files[at])
		if err != nil {
			return fmt.Errorf("write image %q: %w", name, err)
		}
		all = append(all, file{at[1:], text})
	}
	layer, err := newTarArchive(0o755, all...)
	if err != nil {
		return fmt.Errorf("write image %q: %w", name, err)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": imageConfig,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	out, err := newTarArchive(0o644, file{"manifest.json", manifest}, file{"config.json", config}, file{"layer.tar", layer})
	if err != nil {
		return fmt.Errorf("write image %q: %w", name, err)
	}
	_, err = w.Write(out)
	return err
}

type file struct {
	name string
	text []byte
}

func newTarArchive(mode int64, files ...file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: mode, Size: int64(len(f.text)), Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
