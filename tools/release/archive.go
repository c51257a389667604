package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// An archiveFile is a file of an archive.
type archiveFile struct {
	name string // with slashes
	mode int64
	data []byte
}

// writeTarGz writes files into a compressed archive of the release. The same files give the same bytes: they
// are sorted, belong to root, and have the time of the release.
func (r releaser) writeTarGz(name string, files []archiveFile) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b archiveFile) int { return strings.Compare(a.name, b.name) })
	var out bytes.Buffer
	compressor, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressor)
	for _, f := range files {
		header := &tar.Header{
			Format:   tar.FormatPAX,
			Typeflag: tar.TypeReg,
			Name:     f.name,
			Mode:     f.mode,
			Size:     int64(len(f.data)),
			ModTime:  r.epoch,
		}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("write %q to archive %q: %w", f.name, name, err)
		}
		if _, err := archive.Write(f.data); err != nil {
			return fmt.Errorf("write %q to archive %q: %w", f.name, name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("write archive %q: %w", name, err)
	}
	if err := compressor.Close(); err != nil {
		return fmt.Errorf("compress archive %q: %w", name, err)
	}
	return r.writeFile(name, out.Bytes())
}

// readFolderFiles returns the files below dir for an archive in which they are below root. It omits files of the
// name skip.
func readFolderFiles(dir, archiveRoot, skipName string) ([]archiveFile, error) {
	var files []archiveFile
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == skipName {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(file) //nolint:gosec // a manifest that we wrote
		if err != nil {
			return err
		}
		files = append(files, archiveFile{name: path.Join(archiveRoot, filepath.ToSlash(rel)), mode: 0o644, data: data})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the files below %q: %w", dir, err)
	}
	return files, nil
}
