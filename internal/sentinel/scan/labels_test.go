package scan

import (
	"strings"
	"testing"
)

// TestLongTextsAreNotKept checks that the texts that are kept are also limited in bytes.
func TestLongTextsAreNotKept(t *testing.T) {
	w := words{}
	for n := range 2 * maxWord {
		text := strings.Repeat("x", n)
		if got := w.intern([]byte(text)); got != text {
			t.Fatalf("got %q, want %q", got, text)
		}
		if _, kept := w[text]; kept != (n <= maxWord) {
			t.Errorf("%d bytes: kept is %t", n, kept)
		}
	}
}
