package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The folders of the page, below the repository.
const (
	source = "console"
	client = "client/typescript"
	built  = "internal/console/dist"
	sums   = "internal/console/dist.sum"
)

// listPageBuildInputs returns what the build reads, below the source folder.
func listPageBuildInputs() []string {
	return []string{"index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts", "src"}
}

// runPage records the source from which the console's page was built.
//
// It writes hashes of the page's source, of the client that it uses and of its built files to
// internal/console/dist.sum. A test compares them without Node, so that none changes without the others.
func runPage(context.Context, []string, io.Writer) error { return writeSums(".") }

// writeSums records the sums of the repository at root.
func writeSums(root string) error {
	text, err := formatSourceAndBuildChecksums(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, sums), []byte(text), 0o644); err != nil { //nolint:gosec // a file of the repository
		return fmt.Errorf("write the sums: %w", err)
	}
	return nil
}

// formatSourceAndBuildChecksums returns the text of the file of sums.
func formatSourceAndBuildChecksums(root string) (string, error) {
	sourceSum, err := hashFiles(filepath.Join(root, source), listPageBuildInputs()...)
	if err != nil {
		return "", err
	}
	clientSum, err := hashFiles(filepath.Join(root, client), ".")
	if err != nil {
		return "", err
	}
	builtSum, err := hashFiles(filepath.Join(root, built), ".")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s  %s\n%s  %s\n%s  %s\n", sourceSum, source, clientSum, client, builtSum, built), nil
}

// hashFiles returns one hash of the names and the contents of all files below the parts of a folder,
// except installed packages.
func hashFiles(folder string, parts ...string) (string, error) {
	var files []string
	for _, part := range parts {
		err := filepath.WalkDir(filepath.Join(folder, part), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.Name() == "node_modules" {
				return fs.SkipDir
			}
			if !entry.IsDir() {
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("list the files of the page: %w", err)
		}
	}
	slices.Sort(files)

	all := sha256.New()
	for _, path := range files {
		content, err := os.ReadFile(path) //nolint:gosec // a file of the repository
		if err != nil {
			return "", fmt.Errorf("read a file of the page: %w", err)
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, folder))
		_, _ = io.WriteString(all, fmt.Sprintf("%s %x\n", name, sha256.Sum256(content)))
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}
