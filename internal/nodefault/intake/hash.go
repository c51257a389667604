package intake

import (
	"crypto/sha256"
	"encoding/hex"
)

// shortHash returns a short hash of a text.
func shortHash(text string) string {
	const kept = 8
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:kept])
}
