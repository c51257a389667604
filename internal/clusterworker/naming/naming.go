// Package naming chooses the names of Shoots.
//
// A name is a part that a person recognises, the cluster's, and a hash of the
// cluster's id that tells clusters apart. The name of a Shoot can never be
// changed, and Gardener makes the names of DNS records and of cloud resources
// from it, so it has to be short. The same cluster always gets the same name;
// should two clusters have one in spite of their hashes, the next choice of
// either is another. Whoever stores the names finds out.
package naming

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
)

const (
	// MaxLabel is how long a DNS label can be, and so any name.
	MaxLabel = 63
	// MaxTogether is how long the names of a project and of a Shoot can be
	// together. Gardener has the rule for every provider.
	MaxTogether = 21
	// MinLimit is the shortest limit that leaves room for a name: the hash alone.
	MinLimit = shortHash
)

// Lengths of the hash. With the short one and the same readable part, two of
// a thousand clusters have the same name once in two thousand such fleets.
const (
	shortHash = 6
	longHash  = 8
	// roomy is the limit from which on the long hash leaves enough of the name.
	roomy = 16
)

// Limit is how long a Shoot's name can be in a project: as long as is
// configured, or less if Gardener allows less.
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

// Name is the nth choice, from 0, for the Shoot of a cluster. It has at most
// limit characters, which must not be fewer than MinLimit, and is a DNS label that
// begins with a letter and has no two hyphens in a row.
func Name(cluster, id string, n, limit int) string {
	if limit < MinLimit {
		panic(fmt.Sprintf("create Shoot name: no name has at most %d characters", limit)) // Limit says so first
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

// hashName is 52 characters, of which every one of the first ones is as good as
// any other.
func hashName(id string, n int) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(n) + "/" + id))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}

// letterFirst makes a hash begin with a letter.
func letterFirst(h string) string {
	if h[0] <= '9' {
		return string(rune('a'+h[0]-'2')) + h[1:]
	}
	return h
}

// readablePart is what can be used of a cluster's name. The API has it valid
// already but for a digit in front and hyphens in a row; that is not relied on.
func readablePart(cluster string) string {
	var b strings.Builder
	for _, c := range []byte(strings.ToLower(cluster)) {
		letter, digit := 'a' <= c && c <= 'z', '0' <= c && c <= '9'
		switch {
		case digit && b.Len() == 0:
			b.WriteByte('c') // for cluster: the number stays, that may be all there is
			b.WriteByte(c)
		case letter || digit:
			b.WriteByte(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.TrimRight(b.String(), "-")
}
