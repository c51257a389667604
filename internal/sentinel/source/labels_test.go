package source

import (
	"strings"
	"testing"
)

// TestLongTextsAreNotKept checks that the texts that are kept are also limited in bytes.
func TestLongTextsAreNotKept(t *testing.T) {
	w := internedWords{}
	for n := range 2 * maxInternedWord {
		text := strings.Repeat("x", n)
		if got := w.internString([]byte(text)); got != text {
			t.Fatalf("got %q, want %q", got, text)
		}
		if _, kept := w[text]; kept != (n <= maxInternedWord) {
			t.Errorf("%d bytes: kept is %t", n, kept)
		}
	}
}
