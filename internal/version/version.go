// Package version says which build of Fleetloop a program is.
//
// The version is that of the git tag that the source has, without its "v":
// 1.2.0 for the tag v1.2.0. Every other source has the version Development, a
// tagged one with uncommitted changes among them. Programs, images, the chart
// and the kustomizations all have the version that this package gives.
//
// The Go toolchain records tag and commit in the program, so no flag of the
// linker is needed. It reads tags as module versions: a tag v2.0.0 counts once
// the module's path ends in /v2.
package version

import (
	"cmp"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// Development is the version of a build that is not of a tag.
const Development = "dev"

// unknown stands for what the toolchain did not record.
const unknown = "unknown"

// A Build says what a program was built from. Get and Of leave only Module empty.
type Build struct {
	// Version is Development, or the tag without its "v".
	Version string
	// Revision is the commit, with "-dirty" behind it for a source with
	// uncommitted changes, or "unknown".
	Revision string
	// Module is the version with which "go install" gets the same build. It is
	// empty for a working tree without a tag.
	Module string
	// Time is that of the commit in RFC 3339, or "unknown".
	Time string
	// Go is the version of the toolchain, such as go1.26.8.
	Go string
	// Platform is the operating system and the architecture, such as linux/amd64.
	Platform string
}

// Get returns the build of this program.
func Get() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	b := Of(info)
	b.Go, b.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	return b
}

// Of returns the build that info describes.
func Of(info *debug.BuildInfo) Build {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	b := Build{
		Version:  Development,
		Revision: orUnknown(cmp.Or(settings["vcs.revision"], pseudoRevision(info.Main.Version))),
		Time:     orUnknown(settings["vcs.time"]),
		Go:       orUnknown(info.GoVersion),
		Platform: orUnknown(settings["GOOS"]) + "/" + orUnknown(settings["GOARCH"]),
	}
	if settings["vcs.modified"] == "true" {
		b.Revision += "-dirty"
	}
	if isTag(info.Main.Version) {
		b.Version = strings.TrimPrefix(info.Main.Version, "v")
	}
	if b.Version != Development || settings["vcs.revision"] == "" && pseudoRevision(info.Main.Version) != "" {
		b.Module = info.Main.Version
	}
	return b
}

// IsSameSource reports whether two programs have the same version, and between
// tags the same commit.
func (b Build) IsSameSource(other Build) bool {
	return b.Version == other.Version && (b.Version != Development || b.Revision == other.Revision)
}

// Name describes the build in one line: a version, or a commit between versions.
func (b Build) Name() string {
	if b.Version == Development {
		return Development + " (revision " + b.Revision + ")"
	}
	return b.Version
}

// Text describes the build of a program, as --version prints it.
func (b Build) Text(program string) string {
	return fmt.Sprintf("%s, version %s (revision: %s)\n  commit date:  %s\n  go version:   %s\n  platform:     %s\n",
		program, b.Version, b.Revision, b.Time, b.Go, b.Platform)
}

// isTag reports whether a module's version is that of a tag. The other ones are
// pseudo-versions, which end in a time and a commit, versions with a suffix such
// as "+dirty", and "(devel)".
func isTag(version string) bool {
	tag := regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	return tag.MatchString(version) && pseudoRevision(version) == ""
}

// pseudoRevision returns the commit of a pseudo-version, or "".
func pseudoRevision(version string) string {
	pseudo := regexp.MustCompile(`[.-]\d{14}-([0-9A-Za-z]+)$`)
	if m := pseudo.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return ""
}

func orUnknown(value string) string {
	if value == "" {
		return unknown
	}
	return value
}
