package processnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// current is the link to all files of a volume, so that they change at once.
const current = "..data"

// replaceFilesAtomically writes files to a folder, in place of earlier ones. A reader sees either
// all of the old ones or all of the new ones.
func replaceFilesAtomically(dir string, files fileSet) error {
	old, err := os.Readlink(filepath.Join(dir, current))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if old != "" && folderHasExactFiles(filepath.Join(dir, old), files) {
		return nil
	}
	fresh, err := os.MkdirTemp(dir, "..data-")
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(fresh, 0o755), writeAllFiles(fresh, files)); err != nil { //nolint:gosec // as the kubelet makes it
		return errors.Join(err, os.RemoveAll(fresh))
	}
	next := filepath.Join(dir, current+"-next")
	if err := os.Symlink(filepath.Base(fresh), next); err != nil {
		return err
	}
	if err := os.Rename(next, filepath.Join(dir, current)); err != nil {
		return err
	}
	if err := syncVisibleLinks(dir, files); err != nil {
		return err
	}
	if old == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(dir, old))
}

func folderHasExactFiles(dir string, files fileSet) bool {
	have := fileSet{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		data, err := os.ReadFile(path) //nolint:gosec // below our own folder
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		have[rel] = file{data, info.Mode().Perm()}
		return err
	})
	return err == nil && have.equalTo(files)
}

func writeAllFiles(dir string, files fileSet) error {
	for path, f := range files {
		target := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { //nolint:gosec // as the kubelet makes it
			return err
		}
		if err := os.WriteFile(target, f.data, 0o600); err != nil {
			return fmt.Errorf("write %q: %w", path, err)
		}
		if err := os.Chmod(target, f.mode); err != nil {
			return fmt.Errorf("write %q: %w", path, err)
		}
	}
	return nil
}

// syncVisibleLinks creates the visible names, and removes outdated ones.
func syncVisibleLinks(dir string, files fileSet) error {
	names := map[string]bool{}
	for path := range files {
		top, _, _ := strings.Cut(path, string(filepath.Separator))
		names[top] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if names[name] {
			delete(names, name)
			continue
		}
		if strings.HasPrefix(name, "..") {
			continue
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for name := range names {
		if err := os.Symlink(filepath.Join(current, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
