package main

import (
	"compress/gzip"
	"context"
	"io"
	"io/fs"
	"os"
)

// consoleBundleBench measures all files of the console's page as a browser loads them, compressed.
func consoleBundleBench() bench {
	const bundle = "console.bundle_kb"
	return bench{names: []string{bundle}, run: func(context.Context, io.Writer) ([]line, error) {
		size, err := measureCompressed(os.DirFS("internal/console/dist"))
		return []line{{kind: "value", name: bundle, value: float64(size) / 1000, unit: "kB", op: "<=", want: 250}}, err
	}}
}

// measureCompressed returns the sum of the compressed sizes of all files, in bytes.
func measureCompressed(files fs.FS) (int64, error) {
	var counted countingWriter
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		w, err := gzip.NewWriterLevel(&counted, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		return w.Close()
	})
	return int64(counted), err
}

// countingWriter is the number of bytes written to it.
type countingWriter int64

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}
