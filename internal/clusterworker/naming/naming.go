// Package naming chooses the names of Shoots.
//
// A name has a readable part from the name of the cluster, and a hash of the cluster's
// id that distinguishes clusters. The name of a Shoot can never be changed, and
// Gardener derives the names of DNS records and cloud resources from it, so it has to
// be short. The same cluster always gets the same name. If two clusters have the same
// name in spite of their hashes, the next choice of either differs. The store of the
// names detects such conflicts.
package naming

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
)

const (
	// MaxLabel is the longest DNS label, and so the longest name.
	MaxLabel = 63
	// MaxTogether is the longest combined length of the names of a project and a Shoot.
	// Gardener has this limit for every provider.
	MaxTogether = 21
	// MinLimit is the smallest limit that leaves room for a name: the hash alone.
	MinLimit = shortHash
)

// Lengths of the hash. With the short one and the same readable part, two of a thousand
// clusters have the same name in one of two thousand such fleets.
const (
	shortHash = 6
	longHash  = 8
	// roomy is the smallest limit at which the long hash leaves enough of the name.
	roomy = 16
)

// Limit returns the longest name of a Shoot in a project: the configured length, or
// less if Gardener allows less.
func Limit(configured int, project string) (int, error) {
	switch left := MaxTogether - len(project); {
	case configured < 1 || configured > MaxLabel:
		return 0, fmt.Errorf("invalid maximum length of Shoot names: must be 1 to %d, not %d", MaxLabel, configured)
	case configured < MinLimit:
		return 0, fmt.Errorf("maximum length of Shoot names %d is too short for unique names: set it to %d or more", configured, MinLimit)
	case left < MinLimit:
		return 0, fmt.Errorf("project name %q is too long: it leaves %d of %d characters for Shoot names, and %d are required; use a project whose name has at most %d characters",
			project, max(left, 0), MaxTogether, MinLimit, MaxTogether-MinLimit)
	default:
		return min(configured, left), nil
	}
}

// Name returns the nth choice, from 0, for the name of a cluster's Shoot. It has at
// most limit characters, where limit must be at least MinLimit. It is a DNS label that
// begins with a letter and has no two consecutive hyphens.
func Name(cluster, id string, n, limit int) string {
	if limit < MinLimit {
		panic(fmt.Sprintf("create Shoot name: no name has at most %d characters", limit)) // Limit returns this error first
	}
	length := shortHash
	if limit >= roomy {
		length = longHash
	}
	h := hashName(id, n)
	room := min(limit, MaxLabel) - length - len("-")
	if room < 1 {
		return letterFirst(h)[:length]
	}
	r := readablePart(cluster)
	if r = strings.TrimRight(r[:min(room, len(r))], "-"); r == "" {
		return letterFirst(h)[:length]
	}
	return r + "-" + h[:length]
}

// hashName returns 52 characters, of which every leading one is equally random.
func hashName(id string, n int) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(n) + "/" + id))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}

// letterFirst returns the hash with a letter as its first character.
func letterFirst(h string) string {
	if h[0] <= '9' {
		return string(rune('a'+h[0]-'2')) + h[1:]
	}
	return h
}

// readablePart returns the usable part of a cluster's name. The API already ensures a
// valid name except for a leading digit and consecutive hyphens; this function does not
// rely on that.
func readablePart(cluster string) string {
	var b strings.Builder
	for _, c := range []byte(strings.ToLower(cluster)) {
		letter, digit := 'a' <= c && c <= 'z', '0' <= c && c <= '9'
		switch {
		case digit && b.Len() == 0:
			b.WriteByte('c') // c for cluster: keeps the number, which may be the whole name
			b.WriteByte(c)
		case letter || digit:
			b.WriteByte(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.TrimRight(b.String(), "-")
}
