package rules

import (
	"fmt"
	"strings"
)

// didYouMeanSuffix returns a suggestion for an unknown name, if a known name is similar.
func didYouMeanSuffix(text string, known []string) string {
	if best := nearestName(text, known); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// nearestName returns the most similar known name, or "". It ignores case. At most a
// third of the letters, and at most three, may differ.
func nearestName(text string, known []string) string {
	const longest = 64 // longer than any name; the cost is quadratic
	if len(text) > longest {
		return ""
	}
	folded := strings.ToLower(text)
	best, fewest := "", min(3, len(folded)/3)+1
	for _, name := range known {
		if d := editDistance(folded, strings.ToLower(name)); d < fewest {
			best, fewest = name, d
		}
	}
	return best
}

// editDistance returns how many bytes must be inserted, deleted or changed to get from a
// to b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
