package deploy

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fleetloop/fleetloop/internal/version"
)

// WriteReleaseManifests copies this folder from src to dst, which it replaces, with the version of a release. It
// omits Go files. It fails if dst is src, or one of them is within the other.
//
// In the repository the chart and the kustomizations contain the version "dev" and images tagged
// "dev". The copy is for images that were built from the same source, and contains their version.
func WriteReleaseManifests(src, dst, release string) error {
	if err := checkNeitherContainsOther(src, dst); err != nil {
		return err
	}
	if err := os.RemoveAll(dst); err != nil {
		return fmt.Errorf("remove old manifests: %w", err)
	}
	err := filepath.WalkDir(src, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		if entry.IsDir() {
			return os.MkdirAll(to, 0o755) //nolint:gosec // for everyone to read
		}
		if strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path) //nolint:gosec // a manifest of the repository
		if err != nil {
			return err
		}
		return os.WriteFile(to, stampVersion(rel, text, release), 0o644) //nolint:gosec // for everyone to read
	})
	if err != nil {
		return fmt.Errorf("copy manifests of %q to %q: %w", src, dst, err)
	}
	return nil
}

// checkNeitherContainsOther rejects folders that contain each other.
func checkNeitherContainsOther(a, b string) error {
	var err error
	if a, err = filepath.Abs(a); err != nil {
		return err
	}
	if b, err = filepath.Abs(b); err != nil {
		return err
	}
	const end = string(filepath.Separator)
	if strings.HasPrefix(a+end, b+end) || strings.HasPrefix(b+end, a+end) {
		return fmt.Errorf("copy manifests from %q to %q: target must be a sibling directory", a, b)
	}
	return nil
}

// stampVersion replaces the version in a file. The chart's templates contain none.
func stampVersion(path string, text []byte, release string) []byte {
	if release == version.Development || !strings.HasSuffix(path, ".yaml") {
		return text
	}
	if filepath.Base(path) == "Chart.yaml" {
		text = replaceAllMatches(text, `^((?:v|appV)ersion: ).*$`, `${1}"`+release+`"`)
	}
	text = replaceAllMatches(text, `^( *app\.kubernetes\.io/version: )`+version.Development+`$`, `${1}`+release)
	return replaceAllMatches(text, `(\bfleetloop/[a-z-]+:)`+version.Development+`$`, `${1}`+release)
}

func replaceAllMatches(text []byte, pattern, with string) []byte {
	return regexp.MustCompile(`(?m)`+pattern).ReplaceAll(text, []byte(with))
}
