package plan

import (
	"cmp"
	"strings"
)

// Newer is whether version a is above version b. A version that says less than
// the other, as 1.34 does beside 1.34.2, is below it; the empty one is below all.
// Whatever is no version is above none, so that Gardener says what is wrong.
func Newer(a, b string) bool {
	return isVersion(a) && (b == "" || isVersion(b)) && compareVersions(a, b) > 0
}

// higherVersion is the version wanted, or the live one if that is above it.
func higherVersion(wanted, live string) string {
	if Newer(live, wanted) {
		return live
	}
	return wanted
}

// isVersion is whether v begins like one: a number, perhaps behind a v, and dots.
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
	case preA == "": // a release is above what came before it
		return 1
	case preB == "":
		return -1
	default:
		return compareDotted(preA, preB)
	}
}

// splitVersion takes a version apart into its numbers and what stands before a release
// of these numbers. How it was built does not matter.
func splitVersion(v string) (numbers, pre string) {
	v, _, _ = strings.Cut(strings.TrimPrefix(v, "v"), "+")
	numbers, pre, _ = strings.Cut(v, "-")
	return numbers, pre
}

// compareDotted compares part by part. Numbers are compared as such, however long, and
// are below words.
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
	case x == "" || y == "": // the other says more
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
