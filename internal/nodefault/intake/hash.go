package intake

import (
	"crypto/sha256"
	"encoding/hex"
)

// shortSHA256 returns a short hash of a text.
func shortSHA256(text string) string {
	const kept = 8
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:kept])
}
