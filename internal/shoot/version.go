package shoot

import (
	"cmp"
	"strings"
)

// IsNewerVersion reports whether version is above than. A less precise version is below
// the other, such as 1.34 below 1.34.2; the empty one is below all. An invalid version
// is above none, so that Gardener reports the fault.
func IsNewerVersion(version, than string) bool {
	return startsLikeVersion(version) && (than == "" || startsLikeVersion(than)) && compareVersions(version, than) > 0
}

// wantedOrNewerLiveVersion returns the wanted version, or the live one if that is above it.
func wantedOrNewerLiveVersion(wanted, live string) string {
	if IsNewerVersion(live, wanted) {
		return live
	}
	return wanted
}

// startsLikeVersion reports whether v begins like a version: a digit, optionally after a v.
func startsLikeVersion(version string) bool {
	version = strings.TrimPrefix(version, "v")
	return version != "" && version[0] >= '0' && version[0] <= '9'
}

func compareVersions(a, b string) int {
	a, preA := splitPreRelease(a)
	b, preB := splitPreRelease(b)
	if c := compareDottedParts(a, b); c != 0 {
		return c
	}
	switch {
	case preA == preB:
		return 0
	case preA == "": // a release is above its pre-releases
		return 1
	case preB == "":
		return -1
	default:
		return compareDottedParts(preA, preB)
	}
}

// splitPreRelease splits a version into its numbers and its pre-release part. It drops the
// build metadata.
func splitPreRelease(version string) (numbers, preRelease string) {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "+")
	numbers, preRelease, _ = strings.Cut(version, "-")
	return numbers, preRelease
}

// compareDottedParts compares versions part by part. Numbers of any length are compared as
// numbers, and are below words.
func compareDottedParts(a, b string) int {
	for a != "" || b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		if c := compareVersionPart(x, y); c != 0 {
			return c
		}
	}
	return 0
}

func compareVersionPart(x, y string) int {
	xIsNumber, yIsNumber := isAllDigits(x), isAllDigits(y)
	switch {
	case xIsNumber && yIsNumber:
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	case x == "" || y == "": // the other is more precise
		return cmp.Compare(len(x), len(y))
	case xIsNumber:
		return -1
	case yIsNumber:
		return 1
	default:
		return cmp.Compare(x, y)
	}
}

func isAllDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
