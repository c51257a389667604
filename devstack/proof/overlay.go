package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// An overlay names the files that the go command reads in place of others. So the source of the product has no traps.
type overlay struct {
	dir      string            // of the edited files
	replaced map[string]string // by the path that the compiler reports
}

// newOverlay returns an overlay without files. dir gets the edited files.
func newOverlay(dir string) (*overlay, error) {
	return &overlay{dir: dir, replaced: map[string]string{}}, os.MkdirAll(dir, 0o700)
}

// edit replaces a text that occurs once in a file, on the same line.
func (o *overlay) edit(source, before, after string) error {
	path := source
	if edited, ok := o.replaced[source]; ok {
		path = edited
	}
	text, err := os.ReadFile(path) //nolint:gosec // our own source, or that of Go
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), before); n != 1 {
		return fmt.Errorf("%s has %q %d times, want once", source, before, n)
	}
	return o.add(source, strings.Replace(string(text), before, after, 1))
}

// add sets the text of a file, which need not exist.
func (o *overlay) add(source, text string) error {
	path := filepath.Join(o.dir, fmt.Sprintf("%d-%s", len(o.replaced), filepath.Base(source)))
	o.replaced[source] = path
	return os.WriteFile(path, []byte(text), 0o600) //nolint:gosec // the names of the files are ours
}

// writeFlag writes the overlay and returns the flag of the go command.
func (o *overlay) writeFlag() (string, error) {
	text, err := json.Marshal(map[string]map[string]string{"Replace": o.replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(o.dir, "overlay.json")
	return "-overlay=" + path, os.WriteFile(path, text, 0o600)
}
