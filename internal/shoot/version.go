package shoot

import (
	"cmp"
	"strings"
)

// IsNewerVersion reports whether version a is above version b. A less precise version is below
// the other, such as 1.34 below 1.34.2; the empty one is below all. An invalid version
// is above none, so that Gardener reports the fault.
func IsNewerVersion(a, b string) bool {
	return isVersion(a) && (b == "" || isVersion(b)) && compareVersions(a, b) > 0
}

// higherVersion returns the wanted version, or the live one if that is above it.
func higherVersion(wanted, live string) string {
	if IsNewerVersion(live, wanted) {
		return live
	}
	return wanted
}

// isVersion reports whether v begins like a version: a digit, optionally after a v.
func isVersion(v string) bool {
	v = strings.TrimPrefix(v, "v")
	return v != "" && v[0] >= '0' && v[0] <= '9'
}

func compareVersions(a, b string) int {
	a, preA := splitVersion(a)
	b, preB := splitVersion(b)
	if c := compareDotted(a, b); c != 0 {
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
		return compareDotted(preA, preB)
	}
}

// splitVersion splits a version into its numbers and its pre-release part. It drops the
// build metadata.
func splitVersion(v string) (numbers, pre string) {
	v, _, _ = strings.Cut(strings.TrimPrefix(v, "v"), "+")
	numbers, pre, _ = strings.Cut(v, "-")
	return numbers, pre
}

// compareDotted compares versions part by part. Numbers of any length are compared as
// numbers, and are below words.
func compareDotted(a, b string) int {
	for a != "" || b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		if c := comparePart(x, y); c != 0 {
			return c
		}
	}
	return 0
}

func comparePart(x, y string) int {
	nx, ny := isNumber(x), isNumber(y)
	switch {
	case nx && ny:
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	case x == "" || y == "": // the other is more precise
		return cmp.Compare(len(x), len(y))
	case nx != ny:
		return map[bool]int{true: -1, false: 1}[nx]
	default:
		return cmp.Compare(x, y)
	}
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
