package manifest

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of a name.
const (
	// MaxNameLength is the longest DNS label, and so the longest name.
	MaxNameLength = 63
	// MaxCombinedLength is the longest combined length of the names of a project and a Shoot.
	// Gardener has this limit for every provider.
	MaxCombinedLength = 21
	// MinNameLimit is the smallest limit that leaves room for a name: the hash alone.
	MinNameLimit = shortHashLength
)

// Lengths of the hash. With the short one and the same readable part, two of a thousand
// clusters have the same name in one of two thousand such fleets.
const (
	shortHashLength = 6
	longHashLength  = 8
	// longHashLimit is the smallest limit at which the long hash leaves enough of the name.
	longHashLimit = 16
)

// ResolveNameLimit returns the longest name of a Shoot in a project: the configured length, or
// less if Gardener allows less.
func ResolveNameLimit(configuredLength int, projectName string) (limit int, err error) {
	left := MaxCombinedLength - len(projectName)
	switch {
	case configuredLength < 1 || configuredLength > MaxNameLength:
		return 0, fmt.Errorf("invalid maximum length of Shoot names: must be 1 to %d, not %d", MaxNameLength, configuredLength)
	case configuredLength < MinNameLimit:
		return 0, fmt.Errorf(
			"maximum length of Shoot names %d is too short for unique names: set it to %d or more",
			configuredLength,
			MinNameLimit,
		)
	case left < MinNameLimit:
		return 0, fmt.Errorf(
			"project name %q is too long: it leaves %d of %d characters for Shoot names, and %d are required; use a project whose name has at most %d characters",
			projectName,
			max(left, 0),
			MaxCombinedLength,
			MinNameLimit,
			MaxCombinedLength-MinNameLimit,
		)
	default:
		return min(configuredLength, left), nil
	}
}

// DeriveShootName returns the nth choice, from 0, for the name of a cluster's Shoot. It has
// at most maxLength characters, where maxLength must be at least MinNameLimit. It is a DNS
// label that begins with a letter and has no two consecutive hyphens.
//
// A name has a readable part from the name of the cluster, and a hash of the cluster's
// id that distinguishes clusters. The name of a Shoot can never be changed, and
// Gardener derives the names of DNS records and cloud resources from it, so it has to
// be short. The same cluster always gets the same name. If two clusters have the same
// name in spite of their hashes, the next choice of either differs. The store of the
// names detects such conflicts.
func DeriveShootName(clusterName, clusterID string, choiceIndex, maxLength int) string {
	if maxLength < MinNameLimit {
		panic(fmt.Sprintf("create Shoot name: no name has at most %d characters", maxLength)) // ResolveNameLimit returns this error first
	}
	hashLength := shortHashLength
	if maxLength >= longHashLimit {
		hashLength = longHashLength
	}
	hash := hashClusterID(clusterID, choiceIndex)[:hashLength]
	room := max(0, min(maxLength, MaxNameLength)-hashLength-len("-"))
	readable := sanitizeClusterName(clusterName)
	readable = strings.TrimRight(readable[:min(room, len(readable))], "-")
	if readable == "" {
		return replaceLeadingDigit(hash)
	}
	return readable + "-" + hash
}

// hashClusterID returns 52 characters, of which every leading one is equally random.
func hashClusterID(clusterID string, choiceIndex int) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(choiceIndex) + "/" + clusterID))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}

// replaceLeadingDigit returns the hash with a letter as its first character.
func replaceLeadingDigit(hash string) string {
	if hash[0] <= '9' {
		return string(rune('a'+hash[0]-'2')) + hash[1:]
	}
	return hash
}

// sanitizeClusterName returns the usable part of a cluster's name. The API already ensures a
// valid name except for a leading digit and consecutive hyphens; this function does not
// rely on that.
func sanitizeClusterName(clusterName string) string {
	var b strings.Builder
	for _, c := range []byte(strings.ToLower(clusterName)) {
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
