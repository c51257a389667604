package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/internal/version"
)

// checksumFile lists the SHA-256 of every other file of a release, in the format of sha256sum. Its signature
// covers the release.
const checksumFile = "SHA256SUMS"

// cliBinaries are the binaries that a person installs. All others are components.
var cliBinaries = []string{"fleetloop", "fleetloop-up"} //nolint:gochecknoglobals // a constant

// A platform is an operating system and an architecture, by their names in Go.
type platform struct{ os, architecture string }

// String returns the platform as Go prints it, such as linux/amd64.
func (p platform) String() string { return p.os + "/" + p.architecture }

func parsePlatforms(text string) ([]platform, error) {
	var platforms []platform
	for part := range strings.SplitSeq(text, ",") {
		system, architecture, ok := strings.Cut(part, "/")
		if !ok || system == "" || architecture == "" {
			return nil, fmt.Errorf("read platform %q: write it as OS/ARCHITECTURE, such as linux/amd64", part)
		}
		platforms = append(platforms, platform{system, architecture})
	}
	return platforms, nil
}

// A releaser writes the files of a release into a folder.
type releaser struct {
	builder

	version   string // without "v"
	out       string
	platforms []platform
}

// checkTagAndReplaceRelease writes the release of some binaries. The source must be exactly that of the version's tag, because
// programs take their version from it.
func (r releaser) checkTagAndReplaceRelease(ctx context.Context, binaries []string) error {
	if err := r.checkSourceMatchesTag(ctx); err != nil {
		return err
	}
	if r.epoch.IsZero() {
		var err error
		if r.epoch, err = r.readCommitTime(ctx); err != nil {
			return err
		}
	}
	notes, err := r.readChangelogSection()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return fmt.Errorf("remove the previous release: %w", err)
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // for everyone to read
		return err
	}
	if err := r.writeFile("RELEASE_NOTES.md", notes); err != nil {
		return err
	}
	archives, err := r.buildAndWriteArchives(ctx, binaries)
	if err != nil {
		return err
	}
	if err := r.writeKrewAndHomebrewFiles(archives); err != nil {
		return err
	}
	if err := r.buildAndWriteImages(ctx, binaries); err != nil {
		return err
	}
	if err := r.writeManifestArchives(); err != nil {
		return err
	}
	return r.writeChecksums()
}

// checkSourceMatchesTag returns an error unless the source is that of the version's tag, without changes.
func (r releaser) checkSourceMatchesTag(ctx context.Context) error {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(r.version) {
		return fmt.Errorf("version %q is not a semantic version without 'v', such as 1.2.0", r.version)
	}
	tags, err := r.runGit(ctx, "tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	if tag := "v" + r.version; !slices.Contains(strings.Fields(tags), tag) {
		return fmt.Errorf("the current commit does not have the tag %s: check it out, or create it with 'git tag %s'", tag, tag)
	}
	changes, err := r.runGit(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf(
			"the source has uncommitted changes, so the programs would not have the version %s: commit or remove them\n%s",
			r.version,
			changes,
		)
	}
	return nil
}

func (r releaser) readCommitTime(ctx context.Context) (time.Time, error) {
	text, err := r.runGit(ctx, "log", "-1", "--format=%ct")
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the commit: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func (r releaser) runGit(ctx context.Context, args ...string) (rawOutput string, err error) {
	cmd := exec.CommandContext(ctx, "git", args...) //nolint:gosec // our own arguments
	cmd.Dir = r.root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], addStderr(err))
	}
	return string(out), nil
}

// readChangelogSection returns the section of the version in the changelog, without its heading.
func (r releaser) readChangelogSection() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	heading := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(r.version) + `( .*)?\n`).FindIndex(text)
	if heading == nil {
		return nil, fmt.Errorf("CHANGELOG.md has no section '## %s': rename the section 'Unreleased'", r.version)
	}
	section := text[heading[1]:]
	if next := regexp.MustCompile(`(?m)^## `).FindIndex(section); next != nil {
		section = section[:next[0]]
	}
	return append(bytes.TrimSpace(section), '\n'), nil
}

// buildAndWriteArchives writes the archives of all platforms: for people the command line, and for machines the
// components. It returns the names of the former.
func (r releaser) buildAndWriteArchives(ctx context.Context, binaries []string) (cliArchives map[platform]string, err error) {
	people, components := []string{}, []string{}
	for _, binary := range binaries {
		if slices.Contains(cliBinaries, binary) {
			people = append(people, binary)
		} else {
			components = append(components, binary)
		}
	}
	cliArchives = map[platform]string{}
	for _, p := range r.platforms {
		for prefix, group := range map[string][]string{"fleetloop": people, "fleetloop-components": components} {
			if len(group) == 0 {
				continue
			}
			name := fmt.Sprintf("%s_%s_%s_%s.tar.gz", prefix, r.version, p.os, p.architecture)
			if err := r.buildAndWriteArchive(ctx, name, p, group); err != nil {
				return nil, err
			}
			if prefix == "fleetloop" {
				cliArchives[p] = name
			}
		}
	}
	return cliArchives, nil
}

// buildAndWriteArchive writes an archive with binaries, their SBOMs and the license.
func (r releaser) buildAndWriteArchive(ctx context.Context, name string, p platform, binaries []string) error {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	files := []archiveFile{{name: "LICENSE", mode: 0o644, data: license}}
	for _, binary := range binaries {
		path, err := r.buildBinaryOnce(ctx, binary, p)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path) //nolint:gosec // a program that we built
		if err != nil {
			return err
		}
		info, err := buildinfo.Read(bytes.NewReader(data))
		if err != nil {
			return fmt.Errorf("read build information of %q: %w", path, err)
		}
		if got := version.Of(info).Version; got != r.version {
			return fmt.Errorf("%q for %s has version %s, want %s: build in a clone with git, without -buildvcs=false", binary, p, got, r.version)
		}
		sbom, err := EncodeSBOM(SBOMSubject{Name: binary, Data: data, Build: info, Created: r.epoch})
		if err != nil {
			return err
		}
		files = append(files,
			archiveFile{name: binary, mode: 0o755, data: data},
			archiveFile{name: "sbom/" + binary + ".spdx.json", mode: 0o644, data: sbom})
	}
	return r.writeTarGz(name, files)
}

// buildAndWriteImages writes the images of the Linux platforms, and a file with their digests.
func (r releaser) buildAndWriteImages(ctx context.Context, binaries []string) error {
	var architectures []string
	for _, p := range r.platforms {
		if p.os == "linux" {
			architectures = append(architectures, p.architecture)
		}
	}
	if len(architectures) == 0 {
		return nil
	}
	var list strings.Builder
	for _, binary := range binaries {
		image, err := r.buildAndWriteLayout(ctx, filepath.Join(r.out, "images", binary), binary, architectures)
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s:%s@%s\n", binary, image.version, image.digest)
	}
	return r.writeFile("images.txt", []byte(list.String()))
}

// writeManifestArchives writes the chart as Helm packages it, and all other manifests as one archive.
func (r releaser) writeManifestArchives() error {
	dir := filepath.Join(r.dir, "deploy")
	if err := deploy.WriteReleaseManifests(filepath.Join(r.root, "deploy"), dir, r.version); err != nil {
		return err
	}
	chart, err := readFolderFiles(filepath.Join(dir, "chart", "fleetloop"), "fleetloop", ".helmignore")
	if err != nil {
		return err
	}
	if err := r.writeTarGz("fleetloop-"+r.version+".tgz", chart); err != nil {
		return err
	}
	all, err := readFolderFiles(dir, "fleetloop-manifests-"+r.version, "")
	if err != nil {
		return err
	}
	return r.writeTarGz("fleetloop-manifests_"+r.version+".tar.gz", all)
}

// writeChecksums writes the checksums of all files but those of the images, which have digests in images.txt.
func (r releaser) writeChecksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		sum, err := r.computeChecksum(e.Name())
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", sum, e.Name())
	}
	return r.writeFile(checksumFile, []byte(list.String()))
}

// computeChecksum returns the SHA-256 of a file of the release in hexadecimal digits.
func (r releaser) computeChecksum(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(r.out, name)) //nolint:gosec // a file that we wrote
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// writeFile writes a file of the release.
func (r releaser) writeFile(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644) //nolint:gosec // for everyone to read
}
